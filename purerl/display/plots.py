"""Plots of sweeps and learning curves, as PNG files. No pyplot, and no other global state of matplotlib, is used."""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike

from purerl.formulas import aggregates
from purerl.store.atomic import atomic

AXES = "frames", "return"
"""Default labels of the axes of `curves`."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's colours, which colour-blind people can tell apart (Okabe & Ito 2008, "Color Universal Design")."""
DASHES = ("solid", "dashed", "dashdot", "dotted")
"""Dashes of neighbouring lines."""
FORMATS = (".png", ".svg", ".pdf")
"""Kinds of pictures that are written, by the end of the file's name."""
DEAD = "lightgrey"
"""Colour of non-finite scores."""
ROOM = 0.1
"""The least distance between neighbouring values, as a fraction of the axis, at which every value gets a tick."""


def plain(text: str) -> str:
    """Text as matplotlib shows it letter by letter: dollars begin no formula."""
    return text.replace("$", r"\$")


def sweep_map(path: Path, fields: Mapping[str, ArrayLike], scores: ArrayLike, title: str = "") -> None:
    """Writes `sweep_figure` as a PNG file to ``path``, atomically."""
    save(path, sweep_figure(fields, scores, title))


def sweep_figure(fields: Mapping[str, ArrayLike], scores: ArrayLike, title: str = "") -> Figure:
    """A map of a sweep's scores ``[configs, S]``; ``fields`` are the values ``[configs]`` of each swept field, by name.

    With one field there is one panel, of its values against seeds (counted from 0); with several, one for each pair of
    fields. The colour at a point is the interquartile mean of all scores with that pair of values. Points that form a
    complete grid are drawn as cells, others as dots. Non-finite scores are grey: seeds that died, or means over too
    many of them (`aggregates.iqm`). An axis is logarithmic if its values are positive and span more than a decade.
    Raises `ValueError` if there is no field, or if lengths differ.
    """
    scores = np.asarray(scores, np.float64)
    values = {name: np.asarray(given, np.float64) for name, given in fields.items()}
    shapes = {name: list(given.shape) for name, given in values.items()}
    if not values or scores.ndim != 2 or any(shape != [len(scores)] for shape in shapes.values()):
        raise ValueError(f"scores must be [configs, S] and each field [configs], got {list(scores.shape)} and {shapes}")
    if len(values) == 1:
        configs, seeds = np.indices(scores.shape).reshape(2, -1)
        values = {name: given[configs] for name, given in values.items()} | {"seed": seeds.astype(np.float64)}
        scores = scores.reshape(-1, 1)
    panels = [(x, y, *_means(values[x], values[y], scores)) for x, y in itertools.combinations(values, 2)]

    means = np.concatenate([mean.compressed() for *_, mean in panels])
    norm = Normalize(means.min(), means.max()) if means.size else Normalize(0, 1)
    colours = ScalarMappable(norm, colormaps["viridis"].with_extremes(bad=DEAD))
    columns = math.ceil(math.sqrt(len(panels)))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(1.5 + 4 * columns, 3.5 * rows), layout="constrained")
    for i, (x, y, points, mean) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1, xlabel=x, ylabel=y)
        _panel(axes, points, mean, colours)
    label = "return" if len(fields) == 1 else "return, interquartile mean"
    figure.colorbar(colours, ax=figure.axes, label=f"{label} (grey: died)")
    figure.suptitle(plain(title))
    return figure


def curves(
    path: Path, x: ArrayLike, lines: Mapping[str, ArrayLike], title: str = "", axes: tuple[str, str] = AXES
) -> None:
    """Writes `curves_figure` as a PNG file, atomically.

    - ``path``: of the file.
    - ``x, lines, title, axes``: as for `curves_figure`.
    """
    save(path, curves_figure(x, lines, title, axes))


def curves_figure(
    x: ArrayLike,
    lines: Mapping[str, ArrayLike],
    title: str = "",
    axes: tuple[str, str] = AXES,
    canvas: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Curves of means over seeds, with bands from the lowest to the highest seed.

    ``lines`` ``[S, points]`` by name are drawn over ``x`` ``[points]``; ``axes`` are the labels of the x and y axis;
    ``canvas`` is a part of a figure to draw on. Non-finite values are left out. Raises `ValueError` if shapes do not
    match.
    """
    x = np.asarray(x, np.float64)
    given = {name: np.asarray(rows, np.float64) for name, rows in lines.items()}
    wrong = {name: rows.shape for name, rows in given.items() if rows.ndim != 2 or rows.shape[1:] != x.shape}
    if wrong:
        raise ValueError(f"lines must be [S, {len(x)}], got {wrong}")
    figure = canvas or Figure(figsize=(7, 4), layout="constrained")
    panel = figure.add_subplot(xlabel=axes[0], ylabel=axes[1], title=plain(title))
    dress(panel)
    for i, (name, rows) in enumerate(given.items()):
        rows, colour = np.ma.masked_invalid(rows), COLOURS[i % len(COLOURS)]
        panel.plot(x, rows.mean(axis=0), label=name, color=colour, linestyle=DASHES[i % len(DASHES)])
        panel.fill_between(x, rows.min(axis=0), rows.max(axis=0), alpha=0.2, color=colour, linewidth=0)
    panel.legend(fontsize="small")
    return figure


def dress(panel: Axes) -> None:
    """Gives a panel a faint grid, and frames on its x axis the prefixes of units, such as 500k."""
    panel.grid(alpha=0.3, linewidth=0.6)
    if panel.get_xlabel() == "frames":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def _means(x: np.ndarray, y: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """The distinct pairs ``[n, 2]`` of ``x`` and ``y``, ascending, and the interquartile mean score ``[n]`` of each."""
    pairs = np.stack([x, y], axis=1)
    points = np.unique(pairs, axis=0)
    means = [aggregates.iqm(scores[np.all(pairs == point, axis=1)]) for point in points]
    return points, np.ma.masked_invalid(means)


def _panel(axes: Axes, points: np.ndarray, mean: np.ma.MaskedArray, colours: ScalarMappable) -> None:
    """Draws the mean ``[n]`` at each of ``points`` ``[n, 2]``, as cells or dots."""
    x, y = (np.unique(column) for column in points.T)
    log_x, log_y = _is_log(x), _is_log(y)
    norm: Any = colours.norm
    axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    if len(points) == len(x) * len(y):
        cells = mean.reshape(len(x), len(y)).T  # x is the slower axis of points
        axes.pcolormesh(_edges(x, log_x), _edges(y, log_y), cells, norm=norm, cmap=colours.cmap)
        _name_values(axes.xaxis, x, log_x)
        _name_values(axes.yaxis, y, log_y)
        axes.tick_params(axis="x", labelrotation=45)
    else:
        axes.scatter(
            points[:, 0],
            points[:, 1],
            c=mean,
            norm=norm,
            cmap=colours.cmap,
            plotnonfinite=True,
            edgecolors="black",
            linewidths=0.5,
        )


def _is_log(values: np.ndarray) -> bool:
    """Whether an axis with these ascending values is logarithmic."""
    return values[0] > 0 and values[-1] > 10 * values[0]


def _edges(centres: np.ndarray, log: bool) -> np.ndarray:
    """Edges ``[n + 1]`` of cells with ascending ``centres`` ``[n]``, midway between neighbours on the axis."""
    if len(centres) == 1:
        half = abs(centres[0]) / 2 or 0.5
        return np.array([centres[0] - half, centres[0] + half])
    at = np.log(centres) if log else centres
    middle = (at[1:] + at[:-1]) / 2
    edges = np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])
    return np.exp(edges) if log else edges


def _name_values(axis: Axis, values: np.ndarray, log: bool) -> None:
    """Puts ticks at exactly these values, if they are far enough apart (`ROOM`)."""
    at = np.log(values) if log else values
    if np.all(np.diff(at) >= ROOM * (at[-1] - at[0])):
        axis.set_ticks([], minor=True)
        axis.set_ticks(values, [f"{value:.4g}" for value in values])


def save(path: Path, figure: Figure | SubFigure) -> None:
    """Writes a figure, atomically, in the format that the end of the name says: one of `FORMATS`."""
    with atomic(path) as temporary:
        figure.get_figure(root=True).savefig(temporary, format=path.suffix[1:], dpi=150)
