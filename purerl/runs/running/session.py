"""What trainings and searches share as they run: what they are told, and a compiled program in chunks."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from purerl import processes
from purerl.types import PyTree


class Run(NamedTuple):
    """What a training or a search is to do, as a description and as the setup that it stands for; the options that its
    results do not follow from; its directory; and where it talks to."""

    description: Any
    setup: Any
    options: Any
    directory: Path
    console: Console


class Chunk(NamedTuple):
    """What a chunk left: the state, how many steps of the program are done in all, the metrics that the program
    returned, on the devices, whose first ``length`` rows were run; and the seconds that it took."""

    state: PyTree
    done: int
    length: int
    metrics: dict[str, Any]
    seconds: float = 0.0


def is_interrupted(received: list[int]) -> bool:
    """Whether a signal has come to any process, which then lands in the list of each. All must call it."""
    found = [number for number in processes.gathered(received[0] if received else 0) if number]
    received[:] = received or found[:1]
    return bool(found)


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
    """Runs ``program(state, length) -> (state, metrics)`` from step ``done`` to ``total``, yielding after each chunk.

    Chunks have at most ``capacity`` steps and strive towards ``chunk_seconds``, by the clock of the first process; with
    ``every`` one ends at each multiple of it. A state that was yielded is donated to the next chunk: read what you need
    of it before going on.
    """
    length = 1
    while done < total:
        length = min(length, total - done, capacity, every - done % every if every else capacity)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(program(state, np.int32(length)))
        seconds = time.perf_counter() - start
        done += length
        yield Chunk(state, done, length, metrics, seconds)
        length = processes.told(max(1, int(length * min(4.0, chunk_seconds / seconds))))
