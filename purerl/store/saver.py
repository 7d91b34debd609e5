"""Logging and saving in the background of a training."""

import collections
import concurrent.futures
import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from purerl import processes, trees
from purerl.store import arrays, checkpoint, checkpoint_pieces
from purerl.store.log import Log
from purerl.types import PyTree

OVERLAP_BYTES = 2**28
"""The size of the largest state that is copied and written in the background. Copies of larger ones might not fit into
memory: they are written before the training goes on, array by array."""
MOST_WAITING = 8
"""The most tasks that wait in the background; a call that adds another one blocks."""


class Saver:
    """A queue of tasks in the background. The error of a task is raised by the next call of any method."""

    def __init__(self, pool: concurrent.futures.Executor):
        self._pool = pool
        self._pending: collections.deque[concurrent.futures.Future] = collections.deque()
        self._token = processes.from_first(secrets.token_hex(4))

    def later(self, task: Callable[[], Any]) -> None:
        """Adds a task, which is called after all tasks that were added before."""
        self.check()
        while len(self._pending) >= MOST_WAITING:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(task))

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
        """Saves a checkpoint in the background, unless the step was saved before; see `checkpoint.save`.

        If there are several processes, each writes its piece, and all must call this. ``logs`` are first flushed to the
        disk, so that no checkpoint is ahead of them.

        Args:
            directory: The directory of checkpoints.
            step: The number of the step.
            state: The state, which may be overwritten as soon as this returns.
            about: As for `checkpoint.save`.
            keep: As for `checkpoint.save`.
            logs: The logs of the run.
            rows: As for `checkpoint.save`.
        """
        self.wait()
        if processes.from_first(step in checkpoint.steps(directory)):
            return
        several = processes.count() > 1
        if several:
            state, rows = checkpoint_pieces.own(state, rows), None
        overlaps = trees.nbytes(state) <= OVERLAP_BYTES
        if overlaps:
            state, rows = arrays.on_host(state, rows), None
        crew = {"process": processes.index(), "count": processes.count(), "token": self._token}

        def write() -> None:
            for log in logs:
                log.sync()
            if several:
                checkpoint.save_piece(directory, step, state, about, keep=keep, **crew)
            else:
                checkpoint.save(directory, step, state, about, keep=keep, rows=rows)

        self.later(write)
        if not overlaps:
            self.wait()

    def check(self) -> None:
        """Raises the error of a task that has failed."""
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()

    def wait(self) -> None:
        """Waits until all tasks are done."""
        while self._pending:
            self._pending.popleft().result()


@contextlib.contextmanager
def saver() -> Iterator[Saver]:
    """Yields a `Saver` whose tasks are all done when the block ends without an error."""
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="saver") as pool:
        made = Saver(pool)
        yield made
        made.wait()
