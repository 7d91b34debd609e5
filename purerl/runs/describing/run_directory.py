"""Run directories: one run at a time holds one, overwrites nothing by accident, and writes nowhere else."""

import contextlib
import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from purerl import channel, interrupts, processes
from purerl.errors import ConfigError, raised
from purerl.names import shown
from purerl.store import checkpoint, guards

CHECKPOINTS = "checkpoints"
"""The folder of the checkpoints."""
FILMS = "film.gif", "film.mp4", "film.html"
METRICS, QUANTILES, TIMES, EVALUATIONS = "metrics.jsonl", "quantiles.jsonl", "times.jsonl", "evaluations.jsonl"
SELECTION = "selection.jsonl"
"""Logs of a training."""
EXPORTS = "policy.stablehlo", "policy.stablehlo.json", "policy-numpy", "policy.onnx"
"""The files and folders that `purerl render` and `purerl export` make in a run directory, unless another place is
given."""


@contextlib.contextmanager
def hold(directory: Path, names: Sequence[str], *, overwrite: bool = False, resume: bool = False) -> Iterator[None]:
    """Holds a run directory within the context: makes it if it does not exist, and locks it.

    Its content changes by `claim` alone. A run that ends before it has written anything, because it fails, does not fit
    into memory or is interrupted, leaves no directory behind. Of several processes the first one holds the directory
    for all.

    Args:
        directory: The run directory.
        names: The files and folders of a run.
        overwrite: Whether a run in the directory may be replaced.
        resume: Whether the run in the directory is resumed. The directory is then not made.

    Raises:
        ConfigError: If the directory cannot be written, is in use, or holds symbolic links or other special files.
            Without ``resume`` also if it holds anything else than a run, or a run without ``overwrite``.
    """
    if not processes.is_first():
        processes.gathered(None)
        with interrupts.cleaning(lambda: _go_on(directory)):
            try:
                yield
            except (ConfigError, OSError):
                raise
            except raised():
                channel.await_news()
                raise
        return
    _prepare(directory, names, overwrite=overwrite, resume=resume)
    locked = False
    with interrupts.cleaning(lambda: _leave(directory)):
        try:
            with lock(directory):
                _prepare(directory, names, overwrite=overwrite, resume=resume)
                locked = True
                processes.gathered(None)
                yield
        except ConfigError:
            if locked:  # otherwise another process may have the lock
                _abandon(directory)
            raise
        except (OSError, interrupts.Interrupted):
            if words := _leave(directory):
                print(words, file=sys.stderr)
            raise
        except raised():
            channel.await_news()
            _abandon(directory)
            raise


def claim(directory: Path, names: Sequence[str]) -> None:
    """Removes an earlier run from a directory that this process holds, and makes the folder of the checkpoints."""
    clear(directory, names)
    (directory / CHECKPOINTS).mkdir(exist_ok=True)


def clear(directory: Path, names: Sequence[str]) -> None:
    """Removes the files and folders ``names`` of an earlier run from a directory that this process holds."""
    for path in (directory / name for name in names):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def check_out(*paths: Path, overwrite: bool, given: bool = True, folder: bool = False) -> None:
    """Checks that a command may write its output.

    Something may exist at ``paths`` only with ``overwrite``, and it must then be of the same kind.

    Args:
        *paths: What the command writes. The first is its file or folder.
        overwrite: Whether what exists may be replaced.
        given: Whether the user gave the place; its directory must then exist. Otherwise it is a run directory, and
            reading the run reports a missing one.
        folder: Whether the first path is a folder.

    Raises:
        ConfigError: If the command may not write there.
    """
    there = [path for path in paths if path.exists()]
    if there and not overwrite:
        raise ConfigError(f"out = {shown(there[0])!r}: already exists; --overwrite replaces it")
    path, kind = paths[0], "folder" if folder else "file"
    if (path.exists() and path.is_dir() != folder) or (given and not path.parent.is_dir()):
        raise ConfigError(f"out = {shown(path)!r}: must be a {kind} in an existing directory")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise ConfigError(f"out = {str(path)!r}: cannot be written ({path.parent} is read-only)")


def has_checkpoints(directory: Path) -> bool:
    """Returns whether a run has saved a checkpoint from which it can be resumed."""
    folder = directory / CHECKPOINTS  # of a search its steps, of a training a folder of steps for each batch
    places = (folder / str(number) for number in reversed(checkpoint.steps(folder)))
    return any((place / checkpoint.CARD).is_file() or checkpoint.steps(place) for place in places)


def resume_command(directory: Path) -> str:
    """Returns the command that resumes a run."""
    return f"purerl resume {shlex.quote(shown(directory))}"


def _prepare(directory: Path, names: Sequence[str], *, overwrite: bool, resume: bool) -> None:
    try:
        if not resume:
            directory.mkdir(parents=True, exist_ok=True)
        there = [path for path in directory.iterdir() if not _is_empty(path)]
        if not resume and any(not (overwrite and path.name in names) for path in there):
            raise ConfigError(
                f"out = {shown(directory)!r}: already in use; give a new or empty directory, --overwrite to replace "
                "the run, or `purerl resume` to continue it"
            )
        for path in directory.rglob("*"):
            if path.is_symlink():
                raise ConfigError(f"{path}: is a symbolic link; a run writes only into its own directory")
            if not path.is_file() and not path.is_dir():
                raise ConfigError(f"{path}: is neither a file nor a directory")
        if not os.access(directory, os.W_OK):
            raise ConfigError(f"out = {str(directory)!r}: cannot be written (it is read-only)")
    except OSError as error:
        raise ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None


def _is_empty(path: Path) -> bool:
    """Returns whether a path is not part of a run that has begun: the lock, or a folder without checkpoints."""
    return path.name == LOCK or (path.name == CHECKPOINTS and not path.is_symlink() and not any(path.iterdir()))


def _abandon(directory: Path) -> None:
    """Removes a directory in which nothing was written yet."""
    with contextlib.suppress(OSError):
        if all(map(_is_empty, directory.iterdir())):
            (directory / LOCK).unlink(missing_ok=True)
            if (directory / CHECKPOINTS).exists():
                (directory / CHECKPOINTS).rmdir()
            directory.rmdir()


def _leave(directory: Path) -> str:
    """Returns advice on resuming a run that ends early; empty without a checkpoint: it removes the directory."""
    words = _go_on(directory)
    if not words:
        _abandon(directory)
    return words


def _go_on(directory: Path) -> str:
    """Returns advice on resuming a run; empty if it has no checkpoint."""
    return f"resume with: {resume_command(directory)}" if has_checkpoints(directory) else ""


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
        written = guards.read_bytes(directory / LOCK, 100).strip()
        since = os.stat(directory / LOCK, follow_symlinks=False).st_mtime
        process = psutil.Process(int(written))
        return process.pid if process.create_time() <= since + 1 else None
    except (ConfigError, OSError, ValueError, OverflowError, psutil.Error):
        return None
