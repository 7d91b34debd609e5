"""The loop over the chunks of a compiled program, which trainings and searches share."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from rich.console import Console
from rich.prompt import Confirm

from purerl import processes
from purerl.display import progress
from purerl.interrupts import Interrupted
from purerl.types import PyTree

FIXED_SHARE = 0.1
"""The share of a chunk's seconds that should at most go to what does not depend on its length."""
LONGER = 20.0
"""How many times as long as it should be a chunk may become for that."""
LONG_SECONDS = 86400.0
"""The expected seconds of a run from which on it is told before it begins."""


class Chunk(NamedTuple):
    """The result of a chunk of steps.

    - ``state``: the state after it.
    - ``done``: the number of steps of the program that are done in all.
    - ``length``: the number of steps of the chunk.
    - ``metrics``: the metrics that the program returned, on the devices, whose first ``length`` rows were run.
    - ``seconds``: the seconds that the chunk took.
    """

    state: PyTree
    done: int
    length: int
    metrics: dict[str, Any]
    seconds: float = 0.0


class Clock:
    """The seconds of a training or a search: those that were spent before, and those of this process."""

    def __init__(self, before: float = 0.0):
        self._before, self._start = before, time.perf_counter()

    def restart(self) -> None:
        """Begins the seconds of this process anew."""
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Returns the seconds in all."""
        return self._before + time.perf_counter() - self._start

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Does not count the seconds of the block."""
        before = time.perf_counter()
        yield
        self._start += time.perf_counter() - before


class Timer:
    """Tells when so many seconds have passed since the last time; 0: never."""

    def __init__(self, seconds: float):
        self._seconds, self._last = seconds, time.perf_counter()

    def restart(self) -> None:
        """Begins to count."""
        self._last = time.perf_counter()

    def is_due(self) -> bool:
        """Tells whether they have passed on the first process. All processes must call it."""
        passed = time.perf_counter() - self._last
        return bool(processes.from_first(bool(self._seconds) and passed >= self._seconds))


class Ongoing(Protocol):
    """A training or a search that goes on, chunk after chunk (`follow`)."""

    def goes_on(self) -> bool:
        """Tells whether there is another chunk to run. All processes must call it."""
        ...

    def advance(self) -> Chunk | None:
        """Runs a chunk; None: nothing was run, and it does not go on."""
        ...


def follow(ongoing: Ongoing, *handlers: Callable[[Chunk], None]) -> None:
    """Runs chunk after chunk to the end, and calls the handlers, in this order, after each of them."""
    while ongoing.goes_on() and (chunk := ongoing.advance()):
        for handle in handlers:
            handle(chunk)


def confirm(console: Console, yes: bool, seconds: float) -> None:
    """Tells that a run is expected to take more than a day, and asks at a terminal whether to begin it.

    All processes must call it.

    Args:
        console: Where it is told and asked.
        yes: Whether not to ask.
        seconds: The expected seconds.

    Raises:
        Interrupted: Someone at the terminal declined.
    """
    if seconds < LONG_SECONDS:
        return
    progress.say(console, f"the run is expected to take about {progress.duration(seconds)} (an estimate)")
    begins = True
    if processes.is_first() and console.is_terminal and sys.stdin.isatty() and not yes:
        begins = Confirm.ask("begin it? (--yes: do not ask)", console=console)
    if not processes.from_first(begins):
        progress.say(console, "not begun; nothing was written")
        raise Interrupted(signal.SIGINT)


def is_interrupted(received: list[int]) -> bool:
    """Returns whether any process has received a signal. All processes must call it.

    Args:
        received: The signals that this process has received. It gains the signal of another process if it is empty.
    """
    signals = [number for number in processes.gathered(received[0] if received else 0) if number]
    received[:] = received or signals[:1]
    return bool(signals)


def advance(
    program: Callable[[PyTree, Any], tuple[PyTree, dict[str, Any]]],
    state: PyTree,
    done: int,
    total: int,
    *,
    capacity: int,
    chunk_seconds: float,
    every: int = 0,
) -> Iterator[Chunk]:
    """Runs a program from step ``done`` to ``total``, yielding a `Chunk` after each chunk of steps.

    A yielded state is donated to the next chunk: read what is needed of it before going on.

    Args:
        program: ``program(state, length) -> (state, metrics)`` runs ``length`` steps.
        state: The state to begin with.
        done: The number of finished steps.
        total: The number of steps in all.
        capacity: The largest number of steps of a chunk.
        chunk_seconds: The seconds that a chunk should take. Its length is adjusted by the clock of the first process.
            A chunk may take up to `LONGER` times as long, so that its `fixed_seconds` are a small share.
        every: If it is not 0, a chunk also ends at each multiple of so many steps.
    """
    length, fixed, before = 1, 0.0, None
    longest = LONGER * chunk_seconds
    while done < total:
        length = min(length, total - done, capacity, every - done % every if every else capacity)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(program(state, np.int32(length)))
        seconds = time.perf_counter() - start
        done += length
        yield Chunk(state, done, length, metrics, seconds)
        fixed = fixed_seconds(before, (length, seconds), fixed) if before else 0.0
        factor = max(chunk_seconds, min(fixed / FIXED_SHARE, longest)) / seconds
        if before is None and seconds < longest:
            factor = max(factor, 2.0)  # two lengths tell fixed seconds from those of steps
        before = length, seconds
        length = processes.from_first(max(1, int(length * min(4.0, factor))))


def fixed_seconds(one: tuple[int, float], other: tuple[int, float], known: float) -> float:
    """Computes how many seconds a chunk takes beside its steps, such as for copying a large replay.

    Args:
        one: The steps of a chunk, and its seconds.
        other: Those of another chunk.
        known: What is returned where neither has at least twice as many steps as the other.
    """
    (few, short), (many, long) = sorted([one, other])
    if many < 2 * few:
        return known
    of_steps = few * max(long - short, 0.0) / (many - few)
    return max(short - of_steps, 0.0)
