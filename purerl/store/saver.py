"""Saving while the training goes on."""

import concurrent.futures
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from purerl import trees
from purerl.store import arrays, checkpoint
from purerl.store.log import Log
from purerl.types import PyTree

OVERLAP_BYTES = 2**28
"""Size of the largest state that is copied and written in the background. Copies of larger ones might not fit into
memory: they are written before the training goes on, array by array."""


class Saver:
    """Saves checkpoints one after another. The error of a save is raised by the next call of any method."""

    def __init__(self, pool: concurrent.futures.Executor):
        self._pool = pool
        self._pending: concurrent.futures.Future | None = None

    def save(
        self,
        directory: Path,
        step: int,
        state: PyTree,
        about: dict[str, Any],
        *,
        keep: int,
        logs: Sequence[Log],
        rows: int | None = None,
    ) -> None:
        """`checkpoint.save`, unless the step was saved before, after ``logs`` are written through to the disk, so that
        no checkpoint is ahead of them.

        ``state`` may be overwritten as soon as this returns.
        """
        self.wait()
        if step in checkpoint.steps(directory):
            return
        overlaps = trees.nbytes(state) <= OVERLAP_BYTES
        if overlaps:
            state, rows = arrays.on_host(state, rows), None

        def write() -> None:
            for log in logs:
                log.sync()
            checkpoint.save(directory, step, state, about, keep=keep, rows=rows)

        self._pending = self._pool.submit(write)
        if not overlaps:
            self.wait()

    def check(self) -> None:
        """Raises the error of a save that has failed."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Returns when nothing is being saved."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


@contextlib.contextmanager
def saver() -> Iterator[Saver]:
    """A `Saver` that has saved everything when the block ends without an error."""
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="saver") as pool:
        made = Saver(pool)
        yield made
        made.wait()
