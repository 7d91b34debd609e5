"""Untrusted files, opened without waiting for a pipe and without reading a device."""

import io
import os
import stat
from pathlib import Path

from purerl.errors import ConfigError


def is_plain(path: Path) -> bool:
    """Returns whether ``path`` is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def opened(path: Path) -> tuple[io.BufferedReader, int]:
    """Opens a regular file for reading; returns it and its size in bytes. The caller closes it.

    Opening a pipe does not wait for its writer.

    Raises:
        ConfigError: The file cannot be opened, or is not regular but a directory, a pipe or a device; the message names
            the path.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # the path has a null character
        raise ConfigError(f"{str(path)!r}: {error}") from None
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise ConfigError(f"{path}: is not a regular file")
    return file, status.st_size


def read(path: Path, most_bytes: int) -> bytes:
    """Reads a regular file. Raises `ConfigError` as `opened` does, and if it is larger than ``most_bytes``."""
    file, size = opened(path)
    with file:
        if size > most_bytes:
            raise ConfigError(f"{path}: larger than {most_bytes} bytes")
        try:
            return file.read(size)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None
