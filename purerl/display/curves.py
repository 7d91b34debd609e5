"""Learning curves with their uncertainty, as figures.

Colours are those of Okabe and Ito, which colour-blind people can distinguish; neighbours differ in their dashes as
well.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purerl.display import words
from purerl.display.plots import COLOURS, curve, dress, legend, plain

POINTS = 100
"""The largest number of points of a curve, approximately."""


class Line(NamedTuple):
    """A metric of ``M`` members over an axis.

    - ``name``: the label of the line.
    - ``x``: ``[points]``, ascending.
    - ``values``: ``[M, points]``, nan where a member has no value.
    """

    name: str
    x: np.ndarray
    values: np.ndarray


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


def learning_figure(lines: Sequence[Line], axes: tuple[str, str], title: str = "") -> Figure:
    """Draws curves of several members each on one panel, as `plots.curve` does.

    Args:
        lines: The curves.
        axes: The labels of the x and y axis.
        title: The title of the panel.

    Raises:
        ValueError: There is no line.
    """
    if not lines:
        raise ValueError("nothing to draw")
    figure, panel = _panel(axes, title)
    interval = width(*(line.x for line in lines))
    for i, line in enumerate(lines):
        x, values = binned(line.x, line.values, interval)
        size = len(line.values)
        curve(panel, x, carried(values), f"{line.name} ({size} agents)" if size > 1 else line.name, i)
    legend(panel, [len(line.values) for line in lines])
    return figure


def population_figure(
    x: np.ndarray,
    middle: np.ndarray,
    quantiles: Mapping[float, np.ndarray],
    axes: tuple[str, str],
    title: str = "",
    stopped_at: Sequence[float] = (),
) -> Figure:
    """Draws the interquartile mean over a population, and quantiles of its agents as nested areas.

    Quantiles that are all equal, as those of a single member, are drawn as one line.

    Args:
        x: ``[points]``, ascending.
        middle: The interquartile mean ``[points]``.
        quantiles: Quantiles ``[points]`` by their levels, in ascending order.
        axes: The labels of the x and y axis.
        title: The title of the panel.
        stopped_at: Where members stopped early, in units of ``x``; each gets a mark on the axis.
    """
    figure, panel = _panel(axes, title)
    levels, half = list(quantiles), len(quantiles) // 2
    x, means = binned(x, np.stack([middle, *quantiles.values()]), width(x))
    line, *rows = carried(means)
    alone = all(np.array_equal(row, rows[0], equal_nan=True) for row in rows)
    for i in range(0 if not alone else half, half):
        label = f"{levels[i]:.0%} to {levels[-1 - i]:.0%} of agents"
        alpha = 0.18 + 0.17 * i / max(half - 1, 1)
        panel.fill_between(x, rows[i], rows[-1 - i], color=COLOURS[0], alpha=alpha, linewidth=0, label=label)
    panel.plot(x, line, color=COLOURS[0], linewidth=1.8, label=f"{words.STATISTIC} of agents")
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
