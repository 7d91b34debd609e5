"""Logs that still grow, read in steps as columns of numbers; each step reads what is new."""

import math
import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from purerl.errors import ConfigError
from purerl.store import log, regular_files, untrusted_json

MOST_BYTES = 2**28
"""The size of the largest log that is read, in bytes."""
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

    def __init__(self, path: Path):
        self.path = path
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
        file, size = regular_files.opened(self.path)
        with file, self._lock:
            if size > MOST_BYTES:
                raise ConfigError(f"{self.path.name}: larger than {MOST_BYTES} bytes, too large to draw")
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
        row = log.parsed(line)
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
            if not math.isnan(plotted := untrusted_json.plotted(number)):
                yield (f"{name}.{inner}" if inner else name)[:80], plotted
