"""Logs that still grow, read on from where they were read last, as columns of numbers."""

import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from purerl.errors import ConfigError
from purerl.store import log, regular, told

MOST_BYTES = 2**28
"""Size of the largest log that is read, in bytes."""
MOST_COLUMNS = 200
"""Names of numbers that are kept of a log."""
TAIL = 256
"""Bytes of what was read last by which a log is known again."""


class Followed:
    """The numbers in a log of JSON lines, as columns of one length; nan where a line has none. `read` reads on."""

    def __init__(self, path: Path):
        self.path = path
        self._offset, self._length, self._tail = 0, 0, b""
        self._columns: dict[str, array] = {}

    def read(self) -> dict[str, np.ndarray]:
        """The columns so far. A log that was replaced or cut is read anew; its last line may be half written, and a
        line that is no JSON object is left out. Raises `ConfigError` for what is no regular file, or too large."""
        file, size = regular.opened(self.path)
        with file:
            if size > MOST_BYTES:
                raise ConfigError(f"{self.path.name}: larger than {MOST_BYTES} bytes, too large to draw")
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:
                self._forget()
                file.seek(0)
            whole, _, _ = file.read(size - self._offset).rpartition(b"\n")
        for line in whole.splitlines():
            self._add(line)
        if whole:
            self._offset += len(whole) + 1
            self._tail = (self._tail + whole + b"\n")[-TAIL:]
        return {name: np.frombuffer(column, np.float64).copy() for name, column in self._columns.items() if column}

    def _forget(self) -> None:
        self._offset, self._length, self._tail = 0, 0, b""
        self._columns = {}

    def _add(self, line: bytes) -> None:
        row = log.parsed(line)
        if row is None:
            return
        for name, value in _numbers(row):
            column = self._columns.get(name)
            if column is None:
                if len(self._columns) >= MOST_COLUMNS:
                    continue
                column = self._columns[name] = array("d", [math.nan]) * self._length
            if len(column) == self._length:
                column.append(value)
        self._length += 1
        for column in self._columns.values():
            if len(column) < self._length:
                column.append(math.nan)


def _numbers(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line by name; those of an object within it as ``name.inner``."""
    for name, value in row.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for inner, number in parts:
            if not math.isnan(found := told.plotted(number)):
                yield (f"{name}.{inner}" if inner else name)[:80], found
