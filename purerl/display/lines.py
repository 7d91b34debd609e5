"""Learning curves as numbers, and what of them fits into one figure.

A figure has at most `MOST` curves. If there are more, it has one curve for each value of a setting in which they
differ (`readable`).
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from purerl.display import words
from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.names import choose

POINTS = 100
"""The largest number of points of a curve, approximately."""
MOST = 8
"""The largest number of curves of a figure."""
RANGES = 4
"""The number of ranges into which a setting of more than `MOST` numbers is divided."""
MOST_IN_TABLE = 10**8
"""The most values of a joined curve, of all its members."""
RUN = "run"
"""The name under which the run that a line belongs to stands among its settings, if there are several runs."""
NOTHING = "none"
"""The label of configurations that do not have a setting."""


class Line(NamedTuple):
    """A metric of ``M`` members over an axis.

    - ``name``: the label of the line.
    - ``x``: ``[points]``, ascending.
    - ``values``: ``[M, points]``, nan where a member has no value.
    - ``settings``: what the members were trained with: numbers and texts by name.
    - ``joined``: the number of configurations that the line joins; 0 if it is of a single one.
    """

    name: str
    x: np.ndarray
    values: np.ndarray
    settings: Mapping[str, Any] = {}
    joined: int = 0

    @property
    def label(self) -> str:
        """The name and, in brackets, how many configurations and agents the line joins."""
        of = [(self.joined, "configuration"), (len(self.values), "agent")]
        parts = [f"{count} {what}{'s'[: count != 1]}" for count, what in of if count > (what == "agent")]
        return f"{self.name} ({', '.join(parts)})" if parts else self.name


class Readable(NamedTuple):
    """The curves of one figure.

    - ``lines``: at most `MOST`, of at most about `POINTS` points each, ready to draw.
    - ``setting``: the setting by whose values curves are joined; empty if each configuration has a curve of its own.
    - ``offered``: the settings in which the configurations differ.
    - ``told``: what was joined and why, in words; empty if nothing was.
    """

    lines: list[Line]
    setting: str
    offered: list[str]
    told: str


def binned(x: np.ndarray, values: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Averages neighbouring points of curves, within intervals of equal width.

    Args:
        x: ``[n]``, ascending.
        values: ``[..., n]``. Values that are not finite do not count.
        width: The width of an interval, in units of ``x`` (0: every point stays as it is). The end of an interval
            belongs to it, its beginning does not.

    Returns:
        The means of ``x`` ``[intervals]`` and of ``values`` ``[..., intervals]`` (nan: no finite value), of the
        intervals that have points.
    """
    if not len(x):
        return x, values
    number = np.ceil(x / width - 1e-9) if width > 0 else np.arange(len(x))
    first = np.flatnonzero(np.diff(number, prepend=np.nan) != 0)
    there = np.isfinite(values)
    total = np.add.reduceat(np.where(there, values, 0.0), first, axis=-1)
    count = np.add.reduceat(there, first, axis=-1, dtype=np.float64)
    middle = np.add.reduceat(x, first) / np.diff([*first, len(x)])
    return middle, np.where(count > 0, total / np.maximum(count, 1), np.nan)


def width(*axes: np.ndarray) -> float:
    """Returns the width of an interval for `binned`.

    The longest of the ascending ``axes`` has `POINTS` intervals.
    """
    return max((x[-1] for x in axes if len(x)), default=0.0) / POINTS


def carried(values: np.ndarray) -> np.ndarray:
    """Replaces values ``[..., n]`` that are not finite by the latest finite one before them (nan: there is none)."""
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(values.shape[-1]), -1), axis=-1)
    return np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=-1), np.nan)


def readable(lines: Sequence[Line], setting: str = "") -> Readable:
    """Makes the curves of one figure from those of any number of configurations.

    If there are more than `MOST`, or ``setting`` names one, there is one curve for each value of a setting, over all
    agents of all configurations with that value. By default it is the setting that explains most of the configurations'
    last values: the one with the largest adjusted coefficient of determination of a one-way analysis of variance
    (Fisher 1925, "Statistical Methods for Research Workers", chapter 7), ``1 - (SSW / (n - k)) / (SST / (n - 1))`` for
    ``n`` configurations with ``k`` values; of several runs that differ in no setting, it is the run. A setting of more
    than `MOST` numbers is divided into `RANGES` ranges with about equally many numbers each; of more than `MOST` texts
    the first ones have curves of their own, and all others share one.

    Args:
        lines: A line for each configuration.
        setting: The setting; one in which the lines do not differ counts as none.
    """
    offered = _differing(lines)
    chosen = setting if setting in offered else ""
    if len(lines) <= MOST and not chosen:
        return Readable(summarised(lines), "", offered, "")
    by, share = (chosen, 0.0) if chosen else _telling(lines, offered)
    groups = _groups(lines, by)
    kind = "value" if len(groups) == len({line.settings.get(by) for line in lines}) else "group of values"
    told = f"{len(lines)} configurations, one curve for each {'run' if by == RUN else f'{kind} of {by}'}"
    if not chosen and by != RUN:
        told += f", the setting that explains most of their last values ({100 * share:.0f} % of the variance)"
    names = {label: label if by == RUN else f"{by} {label}" for label in groups}
    joined = [_joined(names[label], [lines[i] for i in group]) for label, group in groups.items()]
    return Readable(summarised(joined), by, offered, told)


def grouped(lines: Sequence[Line], group_by: str) -> Readable:
    """Makes the curves of one figure as `readable` does, by a setting that a user has named; empty: none.

    Raises:
        ConfigError: The lines do not differ in that setting.
    """
    drawn = readable(lines, group_by)
    if group_by and not drawn.offered:
        raise ConfigError(f"group_by = {group_by!r}: there are no two configurations that differ in a setting")
    if group_by:
        choose("group_by", group_by, drawn.offered)
    return drawn


def _differing(lines: Sequence[Line]) -> list[str]:
    """Returns the settings in which lines differ, in the order in which they first appear."""
    names = dict.fromkeys(chain.from_iterable(line.settings for line in lines))
    return [name for name in names if len({line.settings.get(name) for line in lines}) > 1]


def _telling(lines: Sequence[Line], offered: Sequence[str]) -> tuple[str, float]:
    """Returns the setting that explains most of the variance of the lines' last values, and how much; else the run."""
    ends = _ends(lines)
    shares = {name: _share(ends, _groups(lines, name)) for name in offered if name != RUN}
    by = max(shares, key=lambda name: shares[name], default=RUN)
    return by, shares.get(by, 0.0)


def _ends(lines: Sequence[Line]) -> np.ndarray:
    """Computes the last value of each line, the interquartile mean over its members; nan if too many of them died."""
    ends = np.array([float(aggregates.iqm(carried(line.values)[:, -1])) for line in lines])
    return np.where(np.isfinite(ends), ends, np.nan)


def _share(ends: np.ndarray, groups: Mapping[str, Sequence[int]]) -> float:
    """Computes which share of the variance of last values ``[n]`` is that between groups, adjusted; 0 if it is none.

    Where there is no last value it is the worst of all.
    """
    if np.isnan(ends).all() or len(groups) in (1, len(ends)):
        return 0.0
    ends = np.where(np.isnan(ends), np.nanmin(ends), ends)
    within = sum(len(group) * np.var(ends[list(group)]) for group in groups.values()) / (len(ends) - len(groups))
    total = float(np.var(ends, ddof=1))
    return max(0.0, 1.0 - float(within) / total) if total > 0 else 0.0


def _groups(lines: Sequence[Line], setting: str) -> dict[str, list[int]]:
    """Returns the numbers of the lines by the value of a setting, as `readable` groups values; numbers ascending."""
    each = [line.settings.get(setting) for line in lines]
    values = list(dict.fromkeys(each))
    numbers = sorted(value for value in values if isinstance(value, int | float))
    others = [value for value in values if not isinstance(value, int | float)]
    shown = _shown(numbers)
    labels = shown | {x: NOTHING if x is None else x for x in others}
    if len(values) > MOST and len(others) <= MOST - RANGES:
        for part in np.array_split(np.arange(len(numbers)), RANGES):
            ends = numbers[part[0]], numbers[part[-1]]
            labels |= {numbers[i]: f"{shown[ends[0]]} to {shown[ends[1]]}" for i in part}
    elif len(values) > MOST:
        labels |= dict.fromkeys([*numbers, *others][MOST - 1 :], f"{len(values) - MOST + 1} others")
    result: dict[str, list[int]] = {label: [] for label in labels.values()}
    for i, value in enumerate(each):
        result[labels[value]].append(i)
    return result


def _shown(numbers: Sequence[float]) -> dict[float, str]:
    """Returns numbers as texts that differ: with four digits, or with all of them if some would be the same."""
    texts = [words.value(x) for x in numbers]
    return dict(zip(numbers, texts if len(set(texts)) == len(texts) else map(repr, numbers), strict=True))


def _joined(name: str, lines: Sequence[Line]) -> Line:
    """Joins lines to one, which has their members; each keeps its latest value up to the end of its own line.

    Raises:
        ConfigError: They are too many.
    """
    x = np.unique(np.concatenate([line.x for line in lines]))
    members = sum(len(line.values) for line in lines)
    if members * len(x) > MOST_IN_TABLE:
        raise ConfigError("too many agents with values at different places for one curve")
    values = np.full((members, len(x)), np.nan)
    first = 0
    for line in lines:
        rows, end = slice(first, first + len(line.values)), int(np.searchsorted(x, line.x[-1])) + 1
        values[rows, np.searchsorted(x, line.x)] = line.values
        values[rows, :end] = carried(values[rows, :end])
        first = rows.stop
    return Line(name, x, values, joined=len(lines))


def summarised(lines: Sequence[Line]) -> list[Line]:
    """Averages neighbouring points of lines within intervals that are the same for all of them (`binned`).

    Members of a line that joins none keep their latest value.
    """
    interval = width(*(line.x for line in lines))
    result = []
    for line in lines:
        x, values = binned(line.x, line.values, interval)
        result.append(line._replace(x=x, values=values if line.joined else carried(values)))
    return result
