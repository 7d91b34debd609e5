"""Learning curves with their uncertainty, as figures. Colours are those of Okabe and Ito, which colour-blind people can
tell apart; neighbours differ in their dashes as well.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purerl.display.plots import COLOURS, DASHES, dress, plain
from purerl.formulas import aggregates

POINTS = 100
"""Most points of a curve, about."""
RESAMPLES = 200_000
"""Most scores that a bootstrap draws at a point."""


class Line(NamedTuple):
    """A metric of ``M`` members over ``x`` ``[points]``, ascending: ``values`` ``[M, points]``, nan where there is
    none."""

    name: str
    x: np.ndarray
    values: np.ndarray


def binned(x: np.ndarray, values: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """``x`` ``[n]``, ascending, and ``values`` ``[..., n]`` as means over neighbours within intervals of so much of
    ``x``, each with its end, of what is there; a mean over nothing is nan."""
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
    """The width of an interval of which the longest of some ascending axes has `POINTS`."""
    return max((x[-1] for x in axes if len(x)), default=0.0) / POINTS


def carried(values: np.ndarray) -> np.ndarray:
    """``values`` ``[..., n]`` with the latest one that is there in place of each nan; nan before the first."""
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(values.shape[-1]), -1), axis=-1)
    return np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=-1), np.nan)


def band(values: np.ndarray, level: float = 0.95) -> np.ndarray:
    """The interquartile mean over members of ``values`` ``[M, n]`` at each point, and the ends of its bootstrap
    interval (`aggregates.estimate`): ``[3, n]``. Members without a value at a point do not count there; nan if none has
    one."""
    found = np.full((3, values.shape[1]), np.nan)
    for i, column in enumerate(values.T):
        known = column[np.isfinite(column)]
        if known.size:
            num = max(20, min(2000, RESAMPLES // known.size))
            found[:, i] = aggregates.estimate(known, num_resamples=num, level=level)
    return found


def learning_figure(lines: Sequence[Line], axes: tuple[str, str], title: str = "") -> Figure:
    """Curves of interquartile means over members with 95 % bootstrap bands, on one panel with the labels ``axes``.
    Raises `ValueError` if there is no line."""
    if not lines:
        raise ValueError("nothing to draw")
    figure, panel = _panel(axes, title)
    interval = width(*(line.x for line in lines))
    for i, line in enumerate(lines):
        x, values = binned(line.x, line.values, interval)
        middle, low, high = band(carried(values))
        size = len(line.values)
        name = plain(f"{line.name} ({size} agents)" if size > 1 else line.name)
        panel.plot(x, middle, label=name, color=_colour(i), linestyle=_dashes(i), linewidth=1.8)
        if size > 1:
            panel.fill_between(x, low, high, color=_colour(i), alpha=0.2, linewidth=0)
    several = any(len(line.values) > 1 for line in lines)
    if several or len(lines) > 1:
        told = "interquartile mean, 95 % bootstrap band" if several else None
        panel.legend(fontsize="small", framealpha=0.8, title=told, title_fontsize="x-small", alignment="left")
    return figure


def quantile_figure(
    x: np.ndarray,
    quantiles: Mapping[float, np.ndarray],
    axes: tuple[str, str],
    title: str = "",
    stopped_at: Sequence[float] = (),
) -> Figure:
    """Quantiles ``[points]`` over a population as nested bands around the median (the middle one), by their levels in
    ascending order. The quantiles of a single member coincide, and are one line. Where members stopped early there is a
    mark on the axis of ``x``."""
    figure, panel = _panel(axes, title)
    x, rows = binned(x, np.stack(list(quantiles.values())), width(x))
    rows, levels, half = carried(rows), list(quantiles), len(quantiles) // 2
    alone = all(np.array_equal(row, rows[0], equal_nan=True) for row in rows)
    for i in range(0 if not alone else half, half):
        label = f"{levels[i]:.0%} to {levels[-1 - i]:.0%}"
        alpha = 0.18 + 0.17 * i / max(half - 1, 1)
        panel.fill_between(x, rows[i], rows[-1 - i], color=COLOURS[0], alpha=alpha, linewidth=0, label=label)
    panel.plot(x, rows[half], color=COLOURS[0], linewidth=1.8, label="median of agents")
    if len(stopped_at):
        over = panel.get_xaxis_transform()
        where = stopped_at, np.full(len(stopped_at), 0.02)
        panel.plot(*where, "^", color=COLOURS[1], transform=over, label="an agent stopped", markersize=7)
    if len(stopped_at) or not alone:
        panel.legend(fontsize="small", framealpha=0.8)
    return figure


def _panel(axes: tuple[str, str], title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.add_subplot(xlabel=plain(axes[0]), ylabel=plain(axes[1]), title=plain(title))
    dress(panel)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.01)
    return figure, panel


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dashes(number: int) -> str:
    return DASHES[number % len(DASHES)]
