"""Run directories: held by one run at a time, never overwritten by accident, and never written out of."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from purerl import processes
from purerl.errors import RAISED, ConfigError
from purerl.runs.describing import interrupts
from purerl.store import checkpoint
from purerl.store.lock import LOCK, lock

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints."""
FILMS = "film.gif", "film.mp4", "film.html"
METRICS, QUANTILES, TIMES, EVALUATIONS = "metrics.jsonl", "quantiles.jsonl", "times.jsonl", "evaluations.jsonl"
"""Logs of a training."""
EXPORTS = "policy.stablehlo", "policy.stablehlo.json", "policy-numpy", "policy.onnx"
"""What `purerl render` and `purerl export` make in a run directory, unless they are told another place."""


@contextlib.contextmanager
def hold(directory: Path, names: Sequence[str], *, overwrite: bool = False, resume: bool = False) -> Iterator[None]:
    """Holds a run directory: made if it is not there, and locked. What is in it changes with `claim` alone.

    ``names`` are the files and folders of a run. A run that ends before it has written anything, because it fails, does
    not fit into memory or is interrupted, leaves no directory behind. Raises `ConfigError` if the directory cannot be
    written or is in use; if it holds symbolic links; if it holds a run, unless ``overwrite`` allows to replace it or
    ``resume`` to go on with it; and if it holds anything else but a run. Of several processes the first one holds it
    for all.
    """
    if not processes.is_first():
        processes.gathered(None)
        with interrupts.cleaning(lambda: _go_on(directory)):
            yield
        return
    _prepare(directory, names, overwrite=overwrite, resume=resume)
    held = False
    with interrupts.cleaning(lambda: _leave(directory)):
        try:
            with lock(directory):
                _prepare(directory, names, overwrite=overwrite, resume=resume)
                held = True
                processes.gathered(None)
                yield
        except ConfigError:
            if held:  # otherwise another process may hold it
                _abandon(directory)
            raise
        except OSError:
            if words := _leave(directory):
                print(words, file=sys.stderr)
            raise
        except RAISED:
            _abandon(directory)
            raise


def claim(directory: Path, names: Sequence[str]) -> None:
    """Removes an earlier run from a directory that this process holds, and makes room for checkpoints."""
    clear(directory, names)
    (directory / CHECKPOINTS).mkdir(exist_ok=True)


def clear(directory: Path, names: Sequence[str]) -> None:
    """Removes an earlier run from a directory that is held."""
    for path in (directory / name for name in names):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def check_out(*paths: Path, overwrite: bool, given: bool = True, folder: bool = False) -> None:
    """Raises `ConfigError` if a command may not write ``paths``, the first of which is its file, or ``folder``.

    Nothing may lie there unless ``overwrite`` allows to replace it, and then only something of the same kind. The
    directory must be there if the place was ``given``; otherwise it is a run's, and reading the run tells if it is not.
    """
    there = [path for path in paths if path.exists()]
    if there and not overwrite:
        raise ConfigError(f"out = {str(there[0])!r}: is there already; --overwrite replaces it")
    path, kind = paths[0], "folder" if folder else "file"
    if (path.exists() and path.is_dir() != folder) or (given and not path.parent.is_dir()):
        raise ConfigError(f"out = {str(path)!r}: must be a {kind} in a directory that is there")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise ConfigError(f"out = {str(path)!r}: cannot be written ({path.parent} is read-only)")


def has_checkpoints(directory: Path) -> bool:
    """Whether a run has saved anything to go on from."""
    folder = directory / CHECKPOINTS
    return folder.is_dir() and any(checkpoint.steps(path) for path in (folder, *folder.iterdir()))


def resume_command(directory: Path) -> str:
    """What a person types to go on with a run."""
    return f"purerl resume {shlex.quote(str(directory))}"


def _prepare(directory: Path, names: Sequence[str], *, overwrite: bool, resume: bool) -> None:
    try:
        if not resume:
            directory.mkdir(parents=True, exist_ok=True)
        there = [path for path in directory.iterdir() if not _is_empty(path)]
        if not resume and any(not (overwrite and path.name in names) for path in there):
            raise ConfigError(
                f"out = {str(directory)!r}: already in use; must be a new or an empty directory, or give --overwrite "
                "to replace the run in it, or `purerl resume` to go on with it"
            )
        for path in directory.rglob("*"):
            if path.is_symlink():
                raise ConfigError(f"{path}: is a symbolic link; a run writes into its own directory alone")
            if not path.is_file() and not path.is_dir():
                raise ConfigError(f"{path}: is neither a file nor a directory")
        if not os.access(directory, os.W_OK):
            raise ConfigError(f"out = {str(directory)!r}: cannot be written (it is read-only)")
    except OSError as error:
        raise ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None


def _is_empty(path: Path) -> bool:
    """Whether what lies there is of no run that has begun: the lock, or a folder without checkpoints."""
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
    """How to go on with a run that ends early; empty if it has saved nothing: then what it has not used is removed."""
    words = _go_on(directory)
    if not words:
        _abandon(directory)
    return words


def _go_on(directory: Path) -> str:
    """How to go on with a run; empty if it has saved nothing."""
    return f"go on with: {resume_command(directory)}" if has_checkpoints(directory) else ""
