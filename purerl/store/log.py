"""Logs: files of JSON lines that grow, and never end in half a line."""

import contextlib
import errno
import json
import math
import os
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from purerl.errors import ConfigError
from purerl.store import guards
from purerl.store.writing import atomic


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
    with guards.opened(path)[0] as file:
        for number, line in enumerate(file, 1):
            if under_way and not line.endswith(b"\n"):
                return
            row = parsed(line)
            if row is None:
                raise ConfigError(f"{path}: line {number} is damaged")
            yield line, row


MOST_BYTES = 2**28
"""The size of the largest log that `Followed` reads, in bytes, unless it is told another."""
MOST_IN_LINE = 2**20
"""The length of the longest line that is read, in bytes with its end."""
MOST_COLUMNS = 200
"""The most columns that are kept of a log."""
TAIL = 256
"""The number of bytes before the offset by which a log is recognised as the one that was read before."""


class Column(NamedTuple):
    """The numbers of one name, and the rows that they are in, ascending."""

    rows: array
    values: array


class Columns(Mapping[str, np.ndarray]):
    """The columns that were read from a log, of one length, float64, nan where a line has no such number.

    A column is made each time it is looked up, so that other columns take no memory.
    """

    def __init__(self, columns: dict[str, Column], length: int, lock: threading.Lock):
        self._columns, self._length, self._lock = columns, length, lock

    def __getitem__(self, name: str) -> np.ndarray:
        column, dense = self._columns[name], np.full(self._length, math.nan)
        with self._lock:  # an array with views cannot grow
            rows, values = np.frombuffer(column.rows, np.int32), np.frombuffer(column.values, np.float64)
            known = np.searchsorted(rows, self._length)
            dense[rows[:known]] = values[:known]
            del rows, values
        return dense

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Followed:
    """The numbers in a log of JSON lines. `read` reads what was added, from any thread.

    It stores the numbers in 12 bytes each, so its memory is in proportion to the log's size.
    """

    def __init__(self, path: Path, most_bytes: float | None = None):
        self.path = path
        self._most = MOST_BYTES if most_bytes is None else most_bytes
        self._lock = threading.Lock()
        self._offset, self._length, self._tail = 0, 0, b""
        self._columns: dict[str, Column] = {}

    def read(self) -> Columns:
        """Reads what was added and returns all columns so far, with a row for each line.

        A log that was replaced or cut is read anew. Its last line may be half written. A line that is no JSON object,
        an empty one, or one longer than `MOST_IN_LINE` is left out.

        Raises:
            ConfigError: The file is not regular, or too large.
        """
        file, size = guards.opened(self.path)
        with file, self._lock:
            if size > self._most:
                raise ConfigError(f"{self.path.name}: larger than {self._most} bytes, too large to draw")
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:
                self._forget()
                file.seek(0)
            for line, end in _whole_lines(file, self._offset, size):
                self._add(line)
                self._offset = end
            file.seek(max(0, self._offset - TAIL))
            self._tail = file.read(min(TAIL, self._offset))
            return Columns(dict(self._columns), self._length, self._lock)

    def _forget(self) -> None:
        self._offset, self._length, self._tail = 0, 0, b""
        self._columns = {}

    def _add(self, line: bytes) -> None:
        row = parsed(line)
        if not row:
            return
        for name, value in _numbers(row):
            column = self._columns.get(name)
            if column is None:
                if len(self._columns) >= MOST_COLUMNS:
                    continue
                column = self._columns[name] = Column(array("i"), array("d"))
            if not column.rows or column.rows[-1] < self._length:
                column.rows.append(self._length)
                column.values.append(value)
        self._length += 1


def _whole_lines(file: BinaryIO, start: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Yields the lines that have their end, from byte ``start`` up to ``size`` or beyond, each with the byte after it.

    A line that is too long is yielded as an empty one.
    """
    short = True
    while start < size and (part := file.readline(MOST_IN_LINE)):
        start += len(part)
        ended = part.endswith(b"\n")
        if ended:
            yield part if short else b"", start
        short = ended


def _numbers(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a line by name; the numbers of an object within it as ``name.inner``."""
    for name, value in row.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for inner, number in parts:
            if not math.isnan(plotted := guards.plotted(number)):
                yield (f"{name}.{inner}" if inner else name)[:80], plotted
