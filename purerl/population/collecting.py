"""Acting in environments of the host: rollouts of all members, one after another, while others are learned from.

With two groups of rows the host steps one while the program acts for the other (double buffering: Petrenko et al. 2020,
Sample Factory, arXiv 2006.11751, section 3.3).
"""

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.hosts.bundle import Leaves, Stepper, Turn, packed
from purerl.loops.hosting import Choice, Lane, StepResult
from purerl.population.hosting import Programs
from purerl.types import Env, Key, PyTree, Step, Transition

SHARES = "stepping", "transfer", "inference", "learning", "waiting"
"""The parts of an iteration's time.

stepping: the host steps. transfer: observations travel and programs are called. inference: actions are computed.
learning: a rollout is learned from. waiting: the actor waits for parameters, or the learner for a rollout.
"""


WHOLE = contextlib.nullcontext()
"""A context for waits that nothing ends."""


Told = list[tuple[int, dict[str, float]]]
"""What episodes told in their last steps, numbers by name, each with the number of its member."""


class Rollout(NamedTuple):
    """The rollout of one iteration.

    - ``lanes``: where each group stands after it.
    - ``rows``: the rows ``[P, T, b]`` of each group.
    - ``next_key``: the keys to go on with.
    - ``key_learn``: the keys for learning from it.
    - ``versions``: ``[T]``, the version of the parameters that chose each step.
    - ``cut``: how many episodes were cut because workers failed.
    - ``told``: what the episodes told that ended.
    - ``seconds``: the seconds of each of `SHARES`.
    """

    lanes: tuple[Lane, ...]
    rows: tuple[Transition, ...]
    next_key: Key
    key_learn: Key
    versions: np.ndarray
    cut: int
    told: Told
    seconds: dict[str, float]


class Reader:
    """Converts between the host's arrays and trees ``[P, ...]``, for ``size`` members in environments of ``env``."""

    def __init__(self, env: Env, size: int):
        self._structure = jax.tree.structure(jax.eval_shape(env.levels, jax.random.key(0), ()))
        self._size, self._agents = size, () if env.num_agents == 1 else (env.num_agents,)
        self._is_tree = not spaces.is_leaf(env.action_space)

    def observed(self, leaves: Leaves) -> PyTree:
        """Returns observations of plain environments as a tree."""
        return jax.tree.unflatten(self._structure, map(self._each, leaves))

    def result(self, turn: Turn) -> StepResult:
        """Returns the result of the host's step."""
        first = self.observed(turn.obs)
        following = first if turn.next_obs is turn.obs else self.observed(turn.next_obs)
        flags: Any = map(self._each, (turn.reward, turn.terminated, turn.truncated))
        return StepResult(Step(following, *flags), first)

    def actions(self, action: Any) -> np.ndarray:
        """Returns actions of rows ``[P, B, ...]`` as actions of environments, those of a tree of spaces `packed`."""
        parts = [x.reshape(-1, *self._agents, *x.shape[2:]) for x in map(np.asarray, jax.tree.leaves(action))]
        return packed(parts, parts[0].shape[: 1 + len(self._agents)]) if self._is_tree else parts[0]

    def told(self, turn: Turn) -> Told:
        """Returns what episodes told, each with the number of its member instead of that of the environment."""
        each = len(turn.reward) // self._size
        return [(row // each, numbers) for row, numbers in turn.told]

    def _each(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self._size, -1, *x.shape[1:])


class Watch:
    """A stopwatch of seconds by name: each `note` counts the seconds since the one before."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(SHARES, 0.0)
        self._last = time.perf_counter()

    def note(self, name: str) -> None:
        """Adds the time since the last note to ``name``."""
        now = time.perf_counter()
        self.seconds[name] += now - self._last
        self._last = now


class Actor:
    """Acts in the rows of all members, by the programs ``made`` with the arguments ``given``.

    Each of ``steppers`` steps one group of rows. Each wait for them is within ``breakable``, which may end a rollout by
    raising on entry. ``ends`` has the ends ``(terminated, truncated)`` of each turn of the latest rollout.
    """

    def __init__(
        self,
        made: Programs,
        given: PyTree,
        steppers: Sequence[Stepper],
        env: Env,
        num_steps: int,
        breakable: contextlib.AbstractContextManager[None] = WHOLE,
    ):
        self._made, self._given, self._steppers = made, given, tuple(steppers)
        self.breakable, self.ends = breakable, list[tuple[np.ndarray, np.ndarray]]()
        self._reader = Reader(env, made.chunk.batch_size)
        self._turns = list(jnp.arange(num_steps, dtype=jnp.int32))  # on the device, so that none travels
        self._lanes: list[Lane] = []

    def reset(self, seeds: Sequence[np.ndarray]) -> None:
        """Begins episodes everywhere, from the seeds of the environments of each group."""
        firsts = [stepper.reset(each) for stepper, each in zip(self._steppers, seeds, strict=True)]
        self._lanes = [self._made.arrive(self._given, self._reader.observed(first)) for first in firsts]

    def collect(self, behaviour: PyTree, version: int, key: Key) -> Rollout:
        """Takes the steps of a rollout. Consumes ``key`` ``[P]``."""
        made, given, lanes, groups = self._made, self._given, self._lanes, range(len(self._steppers))
        watch, cut, at_last, ends = Watch(), 0, len(self._turns) - 1, list[tuple[np.ndarray, np.ndarray]]()
        self.ends, told = ends, Told()
        next_key, key_learn, noises = made.draw(given, key)
        rows = [made.blank() for _ in groups]
        choices = [made.choose(given, behaviour, lanes[g], noises[g], self._turns[0]) for g in groups]
        for g in groups:
            self._send(g, choices[g], watch)
        for at, turn_at in enumerate(self._turns):
            for g in groups:
                with self.breakable:
                    turn = self._steppers[g].receive()
                watch.note("stepping")
                ends.append((turn.terminated, turn.truncated))
                cut, result = cut + turn.cut, made.packing.packed(self._reader.result(turn))
                told += self._reader.told(turn)
                if at < at_last:
                    lanes[g], choices[g], rows[g] = made.step(
                        rows[g], given, behaviour, lanes[g], choices[g], noises[g], turn_at, result
                    )
                    self._send(g, choices[g], watch)
                else:
                    lanes[g], rows[g] = made.last(rows[g], given, lanes[g], choices[g], turn_at, result)
                    watch.note("transfer")
        versions = np.full(len(self._turns), version)
        return Rollout(tuple(lanes), tuple(rows), next_key, key_learn, versions, cut, told, watch.seconds)

    def _send(self, group: int, choice: Choice, watch: Watch) -> None:
        watch.note("transfer")
        action = self._reader.actions(choice.action)
        watch.note("inference")
        self._steppers[group].send(action)
        watch.note("stepping")


class Closed(Exception):
    """An error: the collector was closed, so that no rollouts are wanted any more."""


class Collector:
    """Rollouts one after another, each by the parameters of ``ahead`` rollouts before, or by the first ones.

    With ``ahead`` 0 a rollout is collected when it is asked for. Otherwise a thread collects up to ``ahead`` rollouts
    in advance: rollout ``n`` of ``total`` is by version ``max(0, n - ahead)``, whichever of both is faster, so that a
    training is the same each time (the schedule of Cleanba; Huang et al. 2024, arXiv 2310.00036, section 3).
    """

    def __init__(self, actor: Actor, behaviour: PyTree, version: int, key: Key, total: int, ahead: int):
        self._actor, self._key, self._left, self.closed = actor, key, total, False
        self._behaviours: queue.SimpleQueue[tuple[PyTree, int] | None] = queue.SimpleQueue()
        self._rollouts: queue.SimpleQueue[Rollout | BaseException] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        for _ in range(ahead + 1):
            self._behaviours.put((behaviour, version))
        if ahead:
            self._breakable, actor.breakable = actor.breakable, _Open(self)
            self._thread = threading.Thread(target=self._collect_all, name="acting", daemon=True)
            self._thread.start()

    def next(self) -> Rollout:
        """Returns the next rollout. Raises what collecting it raised."""
        if self._thread is None:
            return self._collect()
        before = time.perf_counter()
        with self._breakable:
            rollout = self._rollouts.get()
        if isinstance(rollout, BaseException):
            raise rollout
        rollout.seconds["waiting"] += time.perf_counter() - before
        return rollout

    def learned(self, behaviour: PyTree, version: int) -> None:
        """Hands on the parameters that were learned from the last rollout."""
        self._behaviours.put((behaviour, version))

    def close(self, seconds: float | None = None) -> None:
        """Ends the thread after its current turn, for which it waits ``seconds`` at most; None: as long as it takes."""
        self.closed = True
        self._behaviours.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    def _collect(self) -> Rollout:
        before = time.perf_counter()
        given = self._behaviours.get()
        if given is None or self.closed:
            raise Closed
        waited = time.perf_counter() - before
        rollout = self._actor.collect(*given, self._key)
        self._key, self._left = rollout.next_key, self._left - 1
        rollout.seconds["waiting"] += waited
        return rollout

    def _collect_all(self) -> None:
        try:
            while self._left:
                self._rollouts.put(self._collect())
        except BaseException as error:  # `next` raises it in the thread that waits
            self._rollouts.put(error)


class _Open:
    """A context for each turn of a collector's thread, which raises `Closed` on entry once the collector is closed."""

    def __init__(self, collector: Collector):
        self._collector = collector

    def __enter__(self) -> None:
        if self._collector.closed:
            raise Closed

    def __exit__(self, *_: Any) -> None:
        """Does nothing."""
