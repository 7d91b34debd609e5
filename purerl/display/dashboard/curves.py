"""The columns of a log as curves, summarised over members, for a page to draw."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purerl.formulas import aggregates

POINTS = 120
"""The largest number of points of a curve; if there are more, neighbours are averaged."""
MOST_GROUPS = 8
"""The largest number of configurations of a sweep that are drawn: the best ones."""


def curve(
    columns: Mapping[str, np.ndarray], x: str, y: str, labels: tuple[str, ...] = ("config", "seed")
) -> dict[str, Any]:
    """Summarises the column ``y`` over the column ``x`` as JSON.

    Args:
        columns: The columns of the log.
        x: The name of the column of the x axis.
        y: The name of the column of values.
        labels: The columns that identify a member. The first one makes groups.

    Returns:
        ``{"x": [points], "groups": [...], "left_out": n}``. A group has its number ``group`` (None: there are no
        groups); its ``size`` in members; ``mid``, the interquartile mean ``[points]``; ``low`` and ``high``, the ends
        of its 95 % bootstrap interval ``[points]``; and ``lines``, those of its members if they are too few for an
        interval. A point without values is nan. ``left_out`` counts the groups that are missing, which have the worst
        last values.
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
    curves = []
    for group in np.unique(groups):
        own = groups == group
        curves.append(
            (
                None if labels[0] not in columns else int(group),
                *_pivot(members[own], index[own], value[own], len(points)),
            )
        )
    best = sorted(curves, key=lambda each: _last(each[2]), reverse=True)[:MOST_GROUPS]
    shown_groups = [_group(group, names, table) for group, names, table in sorted(best, key=lambda each: each[0] or 0)]
    return {"x": points.tolist(), "groups": shown_groups, "left_out": len(curves) - len(shown_groups)}


def _binned(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns at most `POINTS` places along an axis, ascending, and the index of the place of each of ``at``."""
    places, index = np.unique(at, return_inverse=True)
    if len(places) <= POINTS:
        return places, index
    bins = np.arange(len(places)) * POINTS // len(places)
    return np.bincount(bins, places) / np.bincount(bins), bins[index]


def _pivot(members: np.ndarray, index: np.ndarray, value: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct ``members`` ``[M]``, and each one's mean value at each point ``[M, points]`` (nan: none)."""
    names, row = np.unique(members, return_inverse=True)
    place = row * points + index
    count = np.bincount(place, minlength=len(names) * points)
    total = np.bincount(place, value, minlength=len(names) * points)
    with np.errstate(invalid="ignore"):
        return names, (total / np.where(count > 0, count, np.nan)).reshape(len(names), points)


def _last(table: np.ndarray) -> float:
    """Computes the interquartile mean of the last values of all members."""
    return float(aggregates.iqm([row[np.isfinite(row)][-1] for row in table]))


def _group(group: int | None, names: np.ndarray, table: np.ndarray) -> dict[str, Any]:
    """Returns a group, with its members' values ``[M, points]``, as JSON."""
    middle, low, high = aggregates.bands(table).tolist()
    few = 1 < len(names) < aggregates.LEAST
    lines = [{"member": int(name), "y": row.tolist()} for name, row in zip(names, table, strict=True)] if few else []
    return {"group": group, "size": len(names), "mid": middle, "low": low, "high": high, "lines": lines}
