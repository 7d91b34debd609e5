"""Environments that are stepped in this process. Needs no JAX."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from purerl.errors import HostError, one_line, raised
from purerl.hosts.bundle import Batch, Leaves, Stepper, Turn
from purerl.hosts.sound import InvalidData, sound_obs, sound_turn, who

CLOSE_SECONDS = 10.0
"""Seconds that a thread may take to end its step and to close its environments."""


def inline(batch: Batch) -> Stepper:
    """Returns a `Stepper` that steps ``batch`` in this thread, as part of ``receive``.

    It raises `HostError` for what a step raises, and if it returns `InvalidData`; the first observations define what is
    right.
    """
    like: Leaves = ()
    chosen: np.ndarray = np.empty(0)
    time = 0

    def begin(start: Callable[[], Leaves]) -> Leaves:
        nonlocal like, time
        time = 0
        try:
            obs = start()
            like = sound_obs(obs, like or obs)
        except InvalidData as error:
            raise HostError(f"the environment returned invalid data in reset: {error}") from None
        return like

    def play(seeds: np.ndarray, limit: int) -> Leaves:
        games: Any = batch.play
        return begin(lambda: games(seeds.copy(), limit))

    def send(action: np.ndarray) -> None:
        nonlocal chosen
        chosen = action.copy()  # arrays from JAX are read-only

    def receive() -> Turn:
        nonlocal time
        time += 1
        try:
            turn = batch.step(chosen)
            return sound_turn(turn, (len(like[0]), *np.shape(turn.reward)[1:2]), like)
        except InvalidData as error:
            raise HostError(f"the environment returned invalid data at step {time}: {error}") from None
        except raised() as error:
            raise HostError(f"{who(error)} raised {one_line(error)} at step {time}") from error

    reset = lambda seeds: begin(lambda: batch.reset(seeds))
    return Stepper(reset, send, receive, batch.close, play if batch.play else None)


class Apart:
    """A thread of its own, which calls functions one after another; ``receive()`` returns what the next one returned.

    ``receive`` raises what the function raised.
    """

    def __init__(self) -> None:
        self._orders: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while order := self._orders.get():
            try:
                self._answers.put((order(), None))
            except BaseException as error:
                self._answers.put((None, error))

    def send(self, order: Callable[[], Any]) -> None:
        """Has the thread call ``order()`` after those before."""
        self._orders.put(order)

    def receive(self) -> Any:
        """Waits for the next result, and returns it."""
        result, error = self._answers.get()
        if error is not None:
            raise error
        return result

    def close(self, last: Callable[[], Any] | None = None) -> None:
        """Ends the thread, after a call of ``last()``."""
        if last:
            self._orders.put(last)
        self._orders.put(None)
        self._thread.join(CLOSE_SECONDS)


def threaded(make: Callable[[], Batch], apart: Apart | None = None) -> Stepper:
    """Returns a `Stepper` that steps the batch of ``make`` in a thread of its own while this thread goes on.

    The batch is also made, reset and closed in that thread, which is ``apart`` if it exists already, and ends with the
    stepper. ``receive`` raises what `inline` raises.
    """
    thread = apart or Apart()

    def reset(seeds: np.ndarray) -> Leaves:
        thread.send(lambda: stepper.reset(seeds))
        first: Leaves = thread.receive()
        return first

    def step(action: np.ndarray) -> Turn:
        stepper.send(action)
        return stepper.receive()

    thread.send(lambda: inline(make()))
    try:
        stepper: Stepper = thread.receive()
    except BaseException:
        thread.close()
        raise
    return Stepper(
        reset, lambda action: thread.send(lambda: step(action)), thread.receive, lambda: thread.close(stepper.close)
    )
