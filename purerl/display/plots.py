"""Plots of sweeps, learning curves and levels, without pyplot and any other global state of matplotlib."""

import io
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Plain
from matplotlib.figure import SubFigure
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike

from purerl.display import words
from purerl.formulas import aggregates
from purerl.store.writing import atomic

AXES = "frames", "return"
"""The default labels of the axes of `curves`."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's colours, which colour-blind people can tell apart (Okabe & Ito 2008, "Color Universal Design")."""
DASHES = ("solid", "dashed", "dashdot", "dotted")
"""The dashes of neighbouring lines."""
FORMATS = (".png", ".svg", ".pdf")
"""The formats of pictures, by the ending of the file's name."""
LEVEL_SIZE, LEVELS_ACROSS = 240, 6
"""The height of the picture of a level, in pixels, and how many stand side by side."""
DEAD = "lightgrey"
"""The colour of non-finite scores."""
RANKS, LONGEST = 26.0, 24
"""The width of the ranks in a ranking, in points, and the largest number of characters of a value beside them."""
RANKED = 10
"""The largest number of configurations in the ranking of a sweep."""
LETTERS = 16.5
"""The letters of a legend in an inch, approximately."""
ROOM = 0.1
"""The least distance between neighbouring values, as a fraction of the axis, at which every value gets a tick."""


class Figure(Plain):
    """A figure that a notebook shows."""

    def _repr_png_(self) -> bytes:
        """Returns the figure as a PNG, for IPython."""
        with io.BytesIO() as file:
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()


def plain(text: str) -> str:
    """Escapes text so that matplotlib shows it letter by letter: dollars begin no formula."""
    return text.replace("$", r"\$")


def sweep_map(
    path: Path, fields: Mapping[str, ArrayLike], scores: ArrayLike, title: str = "", frames: Sequence[int] = ()
) -> None:
    """Writes `sweep_figure` to ``path``, atomically, in the format of the ending."""
    save(path, sweep_figure(fields, scores, title, frames))


def sweep_figure(
    fields: Mapping[str, ArrayLike], scores: ArrayLike, title: str = "", frames: Sequence[int] = ()
) -> Figure:
    """Draws the ranking of a sweep's configurations by their scores, and below it a map of them.

    The ranking shows the `RANKED` best. With one field the map has one panel, of its values against seeds (counted from
    0). With several it has one for each pair of fields, in which the colour at a point is the interquartile mean of the
    best configuration with that pair of values. Points that form a complete grid are drawn as cells, others as dots.
    Non-finite scores are grey: seeds that died, or means over too many of them (`aggregates.iqm`). An axis is
    logarithmic if its values are positive and span more than a decade.

    Args:
        fields: The values ``[configs]`` of each swept field, by name; numbers or text.
        scores: ``[configs, S]``.
        title: The title of the figure.
        frames: ``[configs]``, the frames of each configuration, if they differ: those with more come first.

    Raises:
        ValueError: There is no field, or lengths differ.
    """
    scores = np.asarray(scores, np.float64)
    values = {name: _numbers(given)[0] for name, given in fields.items()}
    ticks = {name: texts for name, given in fields.items() if (texts := _numbers(given)[1])}
    shapes = {name: list(given.shape) for name, given in values.items()}
    if not values or scores.ndim != 2 or any(shape != [len(scores)] for shape in shapes.values()):
        raise ValueError(f"scores must be [configs, S] and each field [configs], got {list(scores.shape)} and {shapes}")
    pairs = len(values) * (len(values) - 1) // 2 or 1
    columns = math.ceil(math.sqrt(pairs))
    rows, lines = math.ceil(pairs / columns), min(RANKED, len(scores))
    heights = 1.1 + 0.27 * lines, 3.5 * rows
    told = {**fields, **({"frames": frames} if len(set(frames)) > 1 else {})}
    beside_rows = sum(width for _, width in _table(told, range(len(scores))).values()) / 72
    figure = Figure(figsize=(max(7.0, 1.5 + 4 * columns, 4.0 + beside_rows), sum(heights)), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    _ranking(above, told, scores)
    _map(below, values, scores, columns, rows, ticks)
    figure.suptitle(plain(title))
    return figure


def _numbers(given: Any) -> tuple[np.ndarray, list[str]]:
    """Returns values as numbers, and a list of texts: texts become their indices in it; it is empty for numbers."""
    if np.asarray(given).dtype.kind != "U":
        return np.asarray(given, np.float64), []
    texts = list(dict.fromkeys(map(words.value, given)))
    return np.array([texts.index(words.value(x)) for x in given], np.float64), texts


def _ranking(canvas: SubFigure, values: Mapping[str, Any], scores: np.ndarray) -> None:
    """Draws the best configurations, the best at the top, with the values of their fields in columns.

    Of those that are alive, those with more ``frames`` among these come first.

    Each has its interquartile mean with its 95 % bootstrap interval, or a small dot for each seed if they are few.
    """
    estimates = [aggregates.reported_estimate(row) for row in scores]
    frames = values.get("frames", np.zeros(len(scores)))
    lives = np.isfinite(scores).any(axis=1)
    order = sorted(range(len(scores)), key=lambda c: (lives[c], frames[c], estimates[c].value), reverse=True)[:RANKED]
    kind = f"{words.STATISTIC}, 95 % bootstrap interval" if scores.shape[1] >= aggregates.LEAST else "of each seed"
    kind = f"{words.STATISTIC}; small: single seeds" if 1 < scores.shape[1] < aggregates.LEAST else kind
    shown = f"the {len(order)} best of {len(scores)}" if len(order) < len(scores) else f"all {len(scores)}"
    panel = canvas.add_subplot(xlabel=f"return ({kind})", title=f"{shown} configurations")
    panel.set_yticks(range(len(order)), [f"{place}" for place in range(1, len(order) + 1)])
    _beside_rows(panel, _table(values, order))
    panel.set_ylim(len(order) - 0.5, -0.5)
    panel.grid(axis="x", alpha=0.3, linewidth=0.6)
    for place, c in enumerate(order):
        dot(panel, place, scores[c], COLOURS[1] if place == 0 else COLOURS[0])


def _table(values: Mapping[str, Any], order: Sequence[int]) -> dict[str, tuple[list[str], float]]:
    """Returns the columns of a ranking by name: name and values as texts, and the width in points."""
    texts = {name: [name, *(words.value(column[c]) for c in order)] for name, column in values.items()}
    cut = {name: [words.shortened(text, LONGEST) for text in column] for name, column in texts.items()}
    return {name: (column, 5.8 * max(map(len, column)) + 12) for name, column in cut.items()}


def _beside_rows(panel: Axes, table: Mapping[str, tuple[list[str], float]]) -> None:
    """Writes a `_table` to the left of the rows of a panel's ticks."""
    at = -RANKS
    style: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points", "ha": "right", "va": "center"}
    for column, width in reversed(list(table.values())):
        for place, text in enumerate(column, -1):
            panel.annotate(plain(text), (0, place), (at, 0), fontsize=9, color="dimgrey" if place < 0 else "k", **style)
        at -= width


def _map(
    canvas: SubFigure,
    values: Mapping[str, np.ndarray],
    scores: np.ndarray,
    columns: int,
    rows: int,
    ticks: Mapping[str, list[str]],
) -> None:
    """Draws the scores as colours, in one panel for each pair of fields; ``ticks`` are the texts of fields of text."""
    given = dict(values)
    if len(given) == 1:
        configs, seeds = np.indices(scores.shape).reshape(2, -1)
        given = {name: x[configs] for name, x in given.items()} | {"seed": seeds.astype(np.float64)}
        scores = scores.reshape(-1, 1)
    panels = [(x, y, *_best(given[x], given[y], scores)) for x, y in itertools.combinations(given, 2)]
    best = np.concatenate([value.compressed() for *_, value in panels])
    norm = Normalize(best.min(), best.max()) if best.size else Normalize(0, 1)
    colours = ScalarMappable(norm, colormaps["viridis"].with_extremes(bad=DEAD))
    for i, (x, y, points, value) in enumerate(panels):
        panel = canvas.add_subplot(rows, columns, i + 1, xlabel=x, ylabel=y)
        _panel(panel, points, value, colours)
        for axis, name in ((panel.xaxis, x), (panel.yaxis, y)):
            if name in ticks:
                axis.set_ticks(range(len(ticks[name])), [plain(words.shortened(text, 16)) for text in ticks[name]])
    label = "return" if len(values) == 1 else f"return, {words.STATISTIC}\nof the best configuration"
    canvas.colorbar(colours, ax=canvas.axes, label=f"{label} (grey: died)")


def curves(
    path: Path, x: ArrayLike, lines: Mapping[str, ArrayLike], title: str = "", axes: tuple[str, str] = AXES
) -> None:
    """Writes `curves_figure` to a file, atomically, in the format of the ending.

    Args:
        path: The file.
        x: As for `curves_figure`.
        lines: As for `curves_figure`.
        title: As for `curves_figure`.
        axes: As for `curves_figure`.
    """
    save(path, curves_figure(x, lines, title, axes))


def curves_figure(
    x: ArrayLike,
    lines: Mapping[str, ArrayLike],
    title: str = "",
    axes: tuple[str, str] = AXES,
    canvas: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draws curves over seeds, each as `curve` does.

    Args:
        x: ``[points]``.
        lines: ``[S, points]`` of each curve, by name. Non-finite values are left out.
        title: The title of the panel.
        axes: The labels of the x and y axis.
        canvas: A part of a figure to draw on (None: a new figure).

    Raises:
        ValueError: Shapes do not match.
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
        curve(panel, x, rows, name, i)
    legend(panel, [len(rows) for rows in given.values()])
    return figure


def panels_figure(x: ArrayLike, figures: Mapping[str, Mapping[str, ArrayLike]], axes: tuple[str, str] = AXES) -> Figure:
    """Draws a grid of panels, each as `curves_figure` does.

    Args:
        x: As for `curves_figure`.
        figures: Lines, as for `curves_figure`, by the title of their panel.
        axes: As for `curves_figure`.
    """
    across = math.ceil(math.sqrt(len(figures)))
    down = math.ceil(len(figures) / across)
    whole = Figure(figsize=(5 * across, 3.4 * down) if len(figures) > 1 else (7, 4), layout="constrained")
    parts = whole.subfigures(down, across, squeeze=False).flat
    for part, (title, lines) in zip(parts, figures.items(), strict=False):
        curves_figure(x, lines, title, axes, part)
    return whole


def level_sheet(pictures: Sequence[np.ndarray], titles: Sequence[str], scores: np.ndarray, title: str = "") -> Figure:
    """Draws pictures of levels, and below them a histogram of scores.

    Args:
        pictures: Pictures of the shown levels, uint8 ``[H, W, 3]`` each.
        titles: The title above each picture.
        scores: ``[N]``, of all levels, which may be more than are shown.
        title: The title of the figure.
    """
    rows = -(-len(pictures) // LEVELS_ACROSS)
    whole = Figure(figsize=(2.0 * LEVELS_ACROSS, 2.2 * rows + 2.2), layout="constrained")
    above, below = whole.subfigures(2, 1, height_ratios=(2.2 * rows, 2.2), squeeze=False)[:, 0]
    panels = above.subplots(rows, LEVELS_ACROSS, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, picture, name in zip(panels, pictures, titles, strict=False):
        panel.imshow(picture)
        panel.set_title(plain(name), fontsize=8)
    histogram = below.add_subplot(xlabel="score", ylabel="levels", title=f"scores of {len(scores):,} levels")
    histogram.hist(scores, bins=40, color=COLOURS[0])
    whole.suptitle(plain(title))
    return whole


def dot(panel: Axes, place: float, scores: np.ndarray, colour: str, marker: str = "o") -> None:
    """Draws the interquartile mean over agents in a row of a panel, and its 95 % bootstrap interval as a bar.

    Fewer than `aggregates.LEAST` agents have no interval; if there are several, each has a small dot.

    Args:
        panel: Where to draw.
        place: The row, which is a value of y.
        scores: ``[R]``, non-finite where an agent died.
        colour: The colour of the row.
        marker: The form of the mean.
    """
    value, low, high = aggregates.reported_estimate(scores)
    if np.isfinite([low, high]).all():
        panel.hlines(place, low, high, colour, linewidth=2.5, alpha=0.5)
    elif len(scores) > 1:
        alive = scores[np.isfinite(scores)]
        panel.plot(alive, np.full(len(alive), place), "o", color=colour, markersize=3, alpha=0.5)
    if np.isfinite(value):
        panel.plot(value, place, marker, color=colour, markersize=6)


def curve(panel: Axes, x: np.ndarray, values: np.ndarray, name: str, number: int) -> None:
    """Draws the interquartile mean over agents, and its 95 % bootstrap interval as a band.

    Fewer than `aggregates.LEAST` agents have no band; if there are several, each is drawn as a thin line.

    Args:
        panel: Where to draw.
        x: ``[points]``.
        values: ``[M, points]``.
        name: The label of the line.
        number: The number of the line, which chooses its colour and dashes.
    """
    middle, low, high = aggregates.bands(values)
    colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    label = f" {plain(name)}" if name.startswith("_") else plain(name)  # matplotlib leaves such names out
    panel.plot(x, middle, label=label, color=colour, linestyle=dashes, linewidth=1.8)
    if len(values) >= aggregates.LEAST:
        panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    elif len(values) > 1:
        panel.plot(x, np.ma.masked_invalid(values).T, color=colour, linewidth=0.8, alpha=0.5)


def legend(panel: Axes, sizes: Sequence[int], told: str = "") -> None:
    """Adds a legend with the lines' names and their statistic (`beside`); line ``i`` is of ``sizes[i]`` agents.

    A single line of a single agent gets none. ``told`` says in words what the lines are.
    """
    several = [size for size in sizes if size > 1]
    parts = [words.STATISTIC] if several else []
    parts += ["band: its 95 % bootstrap interval"] if any(size >= aggregates.LEAST for size in several) else []
    parts += ["thin: single agents"] if any(size < aggregates.LEAST for size in several) else []
    if several or len(sizes) > 1:
        beside(panel, [told, "; ".join(parts)])


def beside(panel: Axes, told: Sequence[str] = ()) -> None:
    """Adds a legend below a panel, where it covers no line, with the paragraphs ``told`` above it.

    It has as many columns as fit beside each other.
    """
    figure: Any = panel.get_figure(root=False)
    handles, labels = panel.get_legend_handles_labels()
    across = figure.get_window_extent().width / figure.get_figure(root=True).dpi * LETTERS  # letters in the figure
    columns = int(across // (max(map(len, labels)) + 7)) or 1  # a letter each for a gap, and six for the line
    above = [line for text in told for line in textwrap.wrap(text, int(1.1 * across))]
    style: Any = {"fontsize": "small", "title_fontsize": "x-small", "alignment": "left", "frameon": False}
    where: Any = {"loc": "outside lower left", "ncols": columns, "title": "\n".join(above) or None}
    figure.legend(handles, labels, **where, **style)
    if isinstance(figure, Figure):
        figure.set_figheight(figure.get_figheight() + 0.17 * (len(above) + math.ceil(len(labels) / columns)))


def dress(panel: Axes) -> None:
    """Gives a panel a faint grid, and an axis of frames the prefixes of units, such as 500k."""
    panel.grid(alpha=0.3, linewidth=0.6)
    if panel.get_xlabel() == "frames":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def _best(x: np.ndarray, y: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """Returns the distinct pairs of values and the score of the best configuration with each.

    They are the pairs ``[n, 2]`` of ``x`` and ``y``, ascending, and interquartile means ``[n]``.
    """
    pairs, each = np.stack([x, y], axis=1), aggregates.iqm(scores[..., None])
    points = np.unique(pairs, axis=0)
    best = [each[np.all(pairs == point, axis=1)].max() for point in points]
    return points, np.ma.masked_invalid(best)


def _panel(axes: Axes, points: np.ndarray, mean: np.ma.MaskedArray, colours: ScalarMappable) -> None:
    """Draws the mean ``[n]`` at each of ``points`` ``[n, 2]``, as cells or dots."""
    x, y = (np.unique(column) for column in points.T)
    log_x, log_y = _is_log(x), _is_log(y)
    norm: Any = colours.norm
    axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    if len(points) == len(x) * len(y):
        cells = mean.reshape(len(x), len(y)).T  # x varies slowest over points
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
    """Returns whether an axis with these ascending values is logarithmic."""
    return values[0] > 0 and values[-1] > 10 * values[0]


def _edges(centres: np.ndarray, log: bool) -> np.ndarray:
    """Returns the edges ``[n + 1]`` of cells with ascending ``centres`` ``[n]``, midway between them on the axis."""
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
    """Writes a figure, atomically, in the format of the name's ending: one of `FORMATS`."""
    with atomic(path) as temporary:
        figure.get_figure(root=True).savefig(temporary, format=path.suffix[1:], dpi=150)
