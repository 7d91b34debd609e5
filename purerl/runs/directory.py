"""Run directories: claimed by one run, and never overwritten by accident."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from purerl.errors import ConfigError
from purerl.store.checkpoint import LOCK

FILES = (
    "config.json",
    "metrics.jsonl",
    "quantiles.jsonl",
    "summary.json",
    "policy.safetensors",
    "policy.json",
    "sweep.json",
    "sweep.png",
)


def prepare(directory: Path, overwrite: bool, names: Sequence[str] = FILES) -> None:
    """Makes a run directory if it is not there. Raises `ConfigError` if it cannot be written, or holds more than the
    files and folders ``names`` of a run that ``overwrite`` gives away."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK and not (overwrite and path.name in names) for path in directory.iterdir()):
            raise ConfigError(
                f"out = {str(directory)!r}: already in use; must be a new or an empty directory, or give --overwrite "
                "to replace the run in it"
            )
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None


def claim(directory: Path, overwrite: bool, names: Sequence[str] = FILES) -> None:
    """Takes over a directory that `prepare` allows, and removes the earlier run. Of two claims at once, one fails."""
    prepare(directory, overwrite, names)
    try:
        for path in (directory / name for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        (directory / "config.json").open("x").close()
    except OSError as error:
        raise ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None
