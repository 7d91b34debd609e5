"""What every run does on the host, a training or a search: it holds its directory, runs a compiled program in chunks at
a steady pace, keeps its log in step with its checkpoints, and stops when it is asked to."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.errors import ConfigError
from purerl.runs.directory import claim, prepare
from purerl.store import checkpoint
from purerl.store.atomic import atomic
from purerl.types import PyTree


class Chunk(NamedTuple):
    """What a chunk left: the state, how many steps of the program are done in all, and the metrics that the program
    returned, whose first ``length`` rows were run."""

    state: PyTree
    done: int
    length: int
    metrics: dict[str, np.ndarray]


def advance(
    program: Callable[[PyTree, Any], tuple[PyTree, dict[str, Any]]],
    state: PyTree,
    done: int,
    total: int,
    *,
    capacity: int,
    chunk_seconds: float,
) -> Iterator[Chunk]:
    """Runs ``program(state, length) -> (state, metrics)`` from step ``done`` to ``total``, yielding after each chunk.

    Chunks have at most ``capacity`` steps and strive towards ``chunk_seconds``. A state that was yielded is donated to
    the next chunk: read what you need of it before going on.
    """
    length = 1
    while done < total:
        length = min(length, total - done, capacity)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(program(state, np.int32(length)))
        seconds = time.perf_counter() - start
        done += length
        yield Chunk(state, done, length, {name: np.asarray(values) for name, values in metrics.items()})
        length = max(1, int(length * min(4.0, chunk_seconds / seconds)))


@contextlib.contextmanager
def hold(directory: Path, names: Sequence[str], *, overwrite: bool, resume: bool = False) -> Iterator[None]:
    """Holds a run directory: prepared and claimed (`purerl.runs.directory`), unless the run goes on, and locked.

    A run that does not fit into memory before it has written more than its configuration leaves no directory behind.
    Raises `ConfigError` if the directory is in use or cannot be written.
    """
    if not resume:
        prepare(directory, overwrite, names)
    try:
        with checkpoint.lock(directory):
            if not resume:
                claim(directory, overwrite, names)
            yield
    except (MemoryError, jax.errors.JaxRuntimeError):
        if not resume and {path.name for path in directory.iterdir()} <= {"config.json", checkpoint.LOCK}:
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()
        raise


def cut(log: Path, rows: int) -> None:
    """Cuts a log of lines after ``rows`` of them, whole or not at all. Raises `ConfigError` if it has fewer."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    if len(lines) < rows:
        raise ConfigError(f"{log}: has {len(lines)} rows, the checkpoint {rows}")
    with atomic(log) as temporary:
        temporary.write_text("".join(lines[:rows]))


def flush(log: Any) -> None:
    """Writes a log through to the disk, so that no checkpoint is ever ahead of it."""
    log.flush()
    os.fsync(log.fileno())


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
    """Within it, the first SIGINT or SIGTERM only lands in the list it gives; the second acts as usual."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number, frame):
        received.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
