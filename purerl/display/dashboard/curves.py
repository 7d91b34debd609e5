"""The columns of a log as curves: summarised over members, for a page to draw."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purerl.formulas import aggregates

POINTS = 120
"""Most points of a curve; more are averaged, neighbours together."""
MOST_GROUPS = 8
"""Most configurations of a sweep that are drawn: the best ones."""


def curve(
    columns: Mapping[str, np.ndarray], x: str, y: str, labels: tuple[str, ...] = ("config", "seed")
) -> dict[str, Any]:
    """The column ``y`` over the column ``x``, summarised over members, as JSON.

    Members are told apart by the columns ``labels``, of which the first one makes groups. Returns ``{"x": [points],
    "groups": [...], "left_out": n}``; a group has its number ``group`` (None: there are no groups), its ``size`` in
    members, ``mid`` (the interquartile mean), ``low`` and ``high`` (the ends of its 95 % bootstrap interval)
    ``[points]``, and ``lines``, those of its members if they are too few for an interval. nan stands for a point at
    which there is nothing. ``left_out`` counts groups that are not told, the worse ones by their last values.
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
    """The interquartile mean of the last values of all members."""
    return float(aggregates.iqm([row[np.isfinite(row)][-1] for row in table]))


def _told(group: int | None, names: np.ndarray, table: np.ndarray) -> dict[str, Any]:
    """A group as JSON, of its members' values ``[M, points]``."""
    middle, low, high = aggregates.bands(table).tolist()
    few = 1 < len(names) < aggregates.LEAST
    lines = [{"member": int(name), "y": row.tolist()} for name, row in zip(names, table, strict=True)] if few else []
    return {"group": group, "size": len(names), "mid": middle, "low": low, "high": high, "lines": lines}
