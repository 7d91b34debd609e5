"""Locks of run directories: one process at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from purerl.errors import ConfigError
from purerl.store import regular_files

LOCK = "run.lock"


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Locks a run directory exclusively; the operating system releases the lock when the process ends, even if killed.

    Raises:
        ConfigError: Another process holds the lock; the message has its id.
    """
    opened = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    with os.fdopen(opened, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{directory}: in use by process {file.read(20).strip() or 'unknown'}") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def holder(directory: Path) -> int | None:
    """Returns the id of the process in the lock file of a run directory if it still runs, else None.

    It takes no lock, so that it blocks no process. The file is untrusted.
    """
    try:
        written = regular_files.read(directory / LOCK, 100).strip()
        since = os.stat(directory / LOCK, follow_symlinks=False).st_mtime
        process = psutil.Process(int(written))
        return process.pid if process.create_time() <= since + 1 else None
    except (ConfigError, OSError, ValueError, OverflowError, psutil.Error):
        return None
