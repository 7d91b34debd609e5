"""One process at a time in a run directory."""

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
    """An exclusive lock on a run directory, which the operating system releases when the process ends, even if killed.

    Raises `ConfigError`, with the id of the process that holds it, if it is taken.
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
    """The id of the process that wrote itself into the lock of a run directory, if it still runs; None: nobody does.

    It takes no lock, so that it is in nobody's way. The file may be anybody's.
    """
    try:
        written = regular_files.read(directory / LOCK, 100).strip()
        since = os.stat(directory / LOCK, follow_symlinks=False).st_mtime
        process = psutil.Process(int(written))
        return process.pid if process.create_time() <= since + 1 else None
    except (ConfigError, OSError, ValueError, OverflowError, psutil.Error):
        return None
