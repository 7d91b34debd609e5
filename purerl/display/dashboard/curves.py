"""Logs as curves: read on from where they were read last, and summarised over members for a page to draw."""

import json
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.store import regular
from purerl.store.json_files import LARGEST

MOST_BYTES = 2**28
"""Size of the largest log that is read, in bytes."""
MOST_COLUMNS = 200
"""Names of numbers that are kept of a log."""
POINTS = 120
"""Most points of a curve; more are averaged, neighbours together."""
MOST_GROUPS = 8
"""Most configurations of a sweep that are drawn: the best ones."""
MOST_LINES = 5
"""Most members of a group that are also told one by one."""
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
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(row, dict):
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
            if type(number) in (int, float, bool) and abs(number) <= LARGEST:
                yield (f"{name}.{inner}" if inner else name)[:80], float(number)


def curve(
    columns: dict[str, np.ndarray], x: str, y: str, labels: tuple[str, ...] = ("config", "seed")
) -> dict[str, Any]:
    """The column ``y`` over the column ``x``, summarised over members, as JSON.

    Members are told apart by the columns ``labels``, of which the first one makes groups. Returns ``{"x": [points],
    "groups": [...], "left_out": n}``; a group has its number ``group`` (None: there are no groups), its ``size`` in
    members, ``mid`` (the interquartile mean), ``low`` and ``high`` (the quartiles) ``[points]``, and ``lines``, those
    of its members if they are few. None stands for a point at which there is nothing. ``left_out`` counts groups that
    are not told, the worse ones by their last value.
    """
    nothing: dict[str, Any] = {"x": [], "groups": [], "left_out": 0}
    if x not in columns or y not in columns:
        return nothing
    there = np.isfinite(columns[x]) & np.isfinite(columns[y])
    if not there.any():
        return nothing
    absent = np.zeros(len(there))
    at, value = columns[x][there], columns[y][there]
    groups, members = (np.nan_to_num(columns.get(name, absent)[there], nan=-1.0) for name in labels)
    points, index = _binned(at)
    found = []
    for group in np.unique(groups):
        own = groups == group
        found.append(
            (
                None if labels[0] not in columns else int(group),
                *_pivot(members[own], index[own], value[own], len(points)),
            )
        )
    best = sorted(found, key=lambda each: _last(each[2]), reverse=True)[:MOST_GROUPS]
    told = [_told(group, names, table) for group, names, table in sorted(best, key=lambda each: each[0] or 0)]
    return {"x": points.tolist(), "groups": told, "left_out": len(found) - len(told)}


def _binned(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `POINTS` places along an axis, ascending, and the number of the one that each of ``at`` belongs to."""
    places, index = np.unique(at, return_inverse=True)
    if len(places) <= POINTS:
        return places, index
    bins = np.arange(len(places)) * POINTS // len(places)
    return np.bincount(bins, places) / np.bincount(bins), bins[index]


def _pivot(members: np.ndarray, index: np.ndarray, value: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ``members`` ``[M]``, and the mean value of each at each point ``[M, points]``; nan without any."""
    names, row = np.unique(members, return_inverse=True)
    place = row * points + index
    count = np.bincount(place, minlength=len(names) * points)
    total = np.bincount(place, value, minlength=len(names) * points)
    with np.errstate(invalid="ignore"):
        return names, (total / np.where(count > 0, count, np.nan)).reshape(len(names), points)


def _last(table: np.ndarray) -> float:
    """The mean of the last values of all members."""
    return float(np.mean([row[np.isfinite(row)][-1] for row in table]))


def _told(group: int | None, names: np.ndarray, table: np.ndarray) -> dict[str, Any]:
    """A group as JSON, of its members' values ``[M, points]``."""
    columns = [column[np.isfinite(column)] for column in table.T]
    quartiles = [np.percentile(column, [25, 75]).tolist() if len(column) else [None, None] for column in columns]
    return {
        "group": group,
        "size": len(names),
        "mid": [float(aggregates.iqm(column)) if len(column) else None for column in columns],
        "low": [low for low, _ in quartiles],
        "high": [high for _, high in quartiles],
        "lines": [
            {"member": int(name), "y": [float(v) if np.isfinite(v) else None for v in row]}
            for name, row in zip(names, table, strict=True)
        ]
        if 1 < len(names) <= MOST_LINES
        else [],
    }
