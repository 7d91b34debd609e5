"""Logs: files of JSON lines that grow, and never end in half a line."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from purerl.errors import ConfigError
from purerl.store import regular_files
from purerl.store.atomic import atomic


class Log:
    """A file of lines, opened to append to. If a full disk prevents that lines are written whole, none is written."""

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        self._size = os.fstat(self._file).st_size
        self.path = path

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self._file)

    def write(self, lines: Iterable[str]) -> None:
        """Appends lines, each with its end.

        Raises:
            OSError: The lines cannot be written, and then none of them is; or the file is no longer at its path,
                because it was removed, moved or replaced.
        """
        self._check_there()
        data = memoryview("".join(lines).encode())
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise OSError(error.errno, f"{self.path}: cannot be written ({error.strerror})") from None
        self._size += len(data)

    def _check_there(self) -> None:
        try:
            there = os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._file))
        except OSError:
            there = False
        if not there:
            raise OSError(errno.ENOENT, f"{self.path}: was removed or replaced while it was written")

    def sync(self) -> None:
        """Flushes the log to the disk."""
        os.fsync(self._file)


def rows(path: Path, under_way: bool = False) -> Iterator[dict[str, Any]]:
    """Yields the objects in the lines of a log; none if there is no such file.

    Args:
        path: The log.
        under_way: Whether the log may be growing, so that a last line without its end is left out.

    Raises:
        ConfigError: A line is not a JSON object; the message names it.
    """
    for _, row in _lines(path, under_way):
        yield row


def cut(path: Path, saved: Callable[[dict[str, Any]], bool], count: int) -> None:
    """Keeps the first ``count`` rows of a log for which ``saved(row)``, those that a checkpoint counts.

    What follows them may be damaged.

    Raises:
        ConfigError: One of them is missing or damaged; then the log stays as it is.
    """
    kept: list[list[int]] = []  # byte ranges of kept rows; adjacent ranges are merged
    start = 0
    for line, row in _lines(path) if count else ():
        if saved(row):
            count -= 1
            if kept and kept[-1][1] == start:
                kept[-1][1] += len(line)
            else:
                kept.append([start, start + len(line)])
        start += len(line)
        if not count:
            break
    if count:
        raise ConfigError(f"{path}: lacks {count} of the rows that its checkpoint counts")
    if not path.exists():
        return
    if len(kept) < 2 and not (kept and kept[0][0]):
        os.truncate(path, kept[0][1] if kept else 0)
        return
    with atomic(path) as temporary, open(path, "rb") as old, open(temporary, "wb") as new:
        for start, end in kept:
            old.seek(start)
            new.write(old.read(end - start))


def trim(path: Path, saved: Callable[[dict[str, Any]], bool]) -> None:
    """Keeps the rows of a log for which ``saved(row)``, up to the first damaged one, however many they are."""
    count = 0
    with contextlib.suppress(ConfigError):
        for row in rows(path):
            count += saved(row)
    cut(path, saved, count)


def parsed(line: bytes) -> dict[str, Any] | None:
    """Parses a line of a log; None if it is no JSON object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _lines(path: Path, under_way: bool = False) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields the lines of a log, each with its object; none if there is no such file."""
    if not path.exists():
        return
    with regular_files.opened(path)[0] as file:
        for number, line in enumerate(file, 1):
            if under_way and not line.endswith(b"\n"):
                return
            row = parsed(line)
            if row is None:
                raise ConfigError(f"{path}: line {number} is damaged")
            yield line, row
