"""Learning curves with their uncertainty, as figures.

Colours are those of Okabe and Ito, which colour-blind people can distinguish; neighbours differ in their dashes as
well.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from purerl.display import words
from purerl.display.lines import Line, binned, carried, width
from purerl.display.plots import COLOURS, DASHES, Figure, beside, curve, dress, legend, plain


def learning_figure(lines: Sequence[Line], axes: tuple[str, str], title: str = "", told: str = "") -> Figure:
    """Draws curves of several members each on one panel, as `plots.curve` does.

    Args:
        lines: The curves, as `lines.readable` gives them.
        axes: The labels of the x and y axis.
        title: The title of the panel.
        told: What the lines are, in words.

    Raises:
        ValueError: There is no line.
    """
    if not lines:
        raise ValueError("nothing to draw")
    figure, panel = _panel(axes, title)
    for i, line in enumerate(lines):
        curve(panel, line.x, line.values, line.label, i)
    legend(panel, [len(line.values) for line in lines], told)
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
        beside(panel)
    return figure


def offline_figure(comparison: dict[str, Any]) -> Figure:
    """Draws what policies return that were chosen by few episodes, as `offline_comparison.compare` found it.

    Each run has a line over the number of episodes, which is logarithmic, and its 95 % bootstrap interval as a band.
    """
    after, rows = comparison["after"], comparison["runs"]
    figure, panel = _panel(("episodes played to choose a policy", "return of the policy chosen"), rows[0]["env"])
    panel.set_xscale("log")
    for i, row in enumerate(rows):
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        label = plain(f"{row['run']} ({row['algo']}, {row['agents']} policies)")
        panel.plot(after, row["value"], label=label, color=colour, linestyle=dashes, linewidth=1.8)
        panel.fill_between(after, row["low"], row["high"], color=colour, alpha=0.2, linewidth=0)
    beside(panel, [f"expected over trials among {comparison['policies']} policies; band: its 95 % bootstrap interval"])
    return figure


def _panel(axes: tuple[str, str], title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.add_subplot(xlabel=plain(axes[0]), ylabel=plain(axes[1]), title=plain(title))
    dress(panel)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.01)
    return figure, panel
