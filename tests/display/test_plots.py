"""What the figures hold, number by number, and the files they become."""

import itertools
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.image import imread

from purerl.display import plots
from purerl.formulas import aggregates

NAN = np.nan


@pytest.fixture(autouse=True)
def no_warnings():
    """But of files that other tests left open and that are collected meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def panels(figure):
    """Axes of the map of a figure, without its colour bar and the ranking, by the names on them."""
    return {(axes.get_xlabel(), axes.get_ylabel()): axes for axes in figure.axes[1:] if axes.get_xlabel()}


def drawn(axes):
    """The one collection of an axes and its numbers, nan where masked."""
    [collection] = axes.collections
    return collection, np.ma.filled(collection.get_array(), NAN)


def test_one_field_is_a_map_of_values_and_seeds():
    """Columns in rising order of the values, each seed its row, and exactly the dead member grey."""
    values, scores = [1e-2, 1e-4, 1e-3], np.arange(12.0).reshape(3, 4)
    scores[1, 2] = NAN
    figure = plots.sweep_figure({"learning_rate": values}, scores, "sweep")
    [((x, y), axes)] = panels(figure).items()
    mesh, cells = drawn(axes)
    assert (x, y) == ("learning_rate", "seed") and figure.get_suptitle() == "sweep"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    np.testing.assert_array_equal(cells, scores[[1, 2, 0]].T)
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], 10.0 ** np.array([-4.5, -3.5, -2.5, -1.5]))
    np.testing.assert_allclose(mesh.get_coordinates()[:, 0, 1], [-0.5, 0.5, 1.5, 2.5, 3.5])
    np.testing.assert_allclose(axes.get_xticks(), sorted(values))
    assert (mesh.norm.vmin, mesh.norm.vmax) == (0, 11)
    grey = np.all(mesh.to_rgba(mesh.get_array()) == to_rgba(plots.DEAD), axis=-1)
    np.testing.assert_array_equal(grey, np.isnan(cells))


def test_values_that_occur_twice_share_a_cell():
    figure = plots.sweep_figure({"gamma": [0.9, 0.8, 0.9]}, [[1.0, 2], [3, 4], [5, 6]])
    _, cells = drawn(panels(figure)["gamma", "seed"])
    np.testing.assert_array_equal(cells, [[3, 5], [4, 6]])


def test_the_ranking_comes_first():
    """The best at the top, values in columns below the fields' names; intervals of five seeds, or each of fewer."""
    fields, scores = {"a": [1.0, 2, 3], "b": [4.0, 5, 6]}, np.arange(15.0).reshape(3, 5) ** 2
    scores[2, :2] = NAN
    panel = plots.sweep_figure(fields, scores).axes[0]
    assert panel.get_title() == "all 3 configurations"
    assert [label.get_text() for label in panel.get_yticklabels()] == ["1", "2", "3"]
    table = {}
    for text in panel.texts:
        table.setdefault(text.xy[1], []).insert(0, text.get_text())
    assert table == {-1: ["a", "b"], 0: ["2", "5"], 1: ["1", "4"], 2: ["3", "6"]}
    assert panel.get_xlabel() == "return (interquartile mean, 95 % bootstrap interval)" and panel.yaxis_inverted()
    middles = [line.get_xdata()[0] for line in panel.lines if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(middles, aggregates.iqm(scores[[1, 0], :, None]))
    [(low, _), (high, _)] = panel.collections[0].get_segments()[0]
    np.testing.assert_allclose((low, high), aggregates.reported_estimate(scores[1])[1:])
    few = plots.sweep_figure({"a": np.arange(20.0)}, np.arange(40.0).reshape(20, 2)).axes[0]
    assert few.get_title() == "the 10 best of 20 configurations" and not few.collections
    assert few.get_xlabel() == "return (interquartile mean; small: single seeds)"
    np.testing.assert_array_equal(few.lines[0].get_xdata(), [38, 39])


def test_grid_of_three_fields():
    """A panel for each pair; a cell is the interquartile mean over seeds of the best with that pair."""
    options = {"a": [0.1, 0.2], "b": [1.0, 3.0, 9.0], "c": [-1.0, 100.0]}
    grid = np.array(list(itertools.product(*options.values())))
    order = np.random.default_rng(0).permutation(len(grid))
    fields = dict(zip(options, grid[order].T, strict=True))
    scores = np.random.default_rng(1).normal(size=(len(grid), 5))
    scores[0, 0] = NAN
    result = panels(plots.sweep_figure(fields, scores))
    assert set(result) == {("a", "b"), ("a", "c"), ("b", "c")}
    norms = set()
    for (x, y), axes in result.items():
        mesh, cells = drawn(axes)
        norms.add((mesh.norm.vmin, mesh.norm.vmax))
        assert axes.get_xscale() == axes.get_yscale() == "linear"
        for (i, u), (j, v) in itertools.product(enumerate(options[x]), enumerate(options[y])):
            assert cells[j, i] == aggregates.iqm(scores[(fields[x] == u) & (fields[y] == v), :, None]).max()
    assert len(norms) == 1


def test_random_samples_are_dots():
    rng = np.random.default_rng(2)
    fields = {"learning_rate": 10 ** rng.uniform(-4, -2, 20), "gamma": rng.uniform(0.9, 1, 20)}
    scores = rng.normal(size=(20, 8))
    scores[3, :3] = NAN
    scores[4, :2] = NAN
    axes = panels(plots.sweep_figure(fields, scores))["learning_rate", "gamma"]
    dots, colours = drawn(axes)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    for config in range(20):
        [at] = np.flatnonzero(np.all(dots.get_offsets() == [fields[n][config] for n in fields], axis=1))
        expected = NAN if config == 3 else aggregates.iqm(scores[config])
        np.testing.assert_array_equal(colours[at], expected)
    dots.update_scalarmappable()
    grey = np.all(dots.get_facecolor() == to_rgba(plots.DEAD), axis=-1)
    np.testing.assert_array_equal(grey, np.isnan(colours))
    assert grey.sum() == 1


@pytest.mark.parametrize(
    ("fields", "scores"), [({}, [[1.0]]), ({"a": [1.0, 2.0]}, [[1.0]]), ({"a": [1.0]}, [1.0]), ({"a": 1.0}, [[1.0]])]
)
def test_lengths_that_differ(fields, scores):
    with pytest.raises(ValueError, match="each field"):
        plots.sweep_figure(fields, scores)


@pytest.mark.parametrize("dead", [False, True])
def test_files(tmp_path, dead):
    """Each call leaves one PNG that is more than an empty page, and matplotlib's settings as they were."""
    before = dict(matplotlib.rcParams)
    scores = np.full((4, 3), NAN) if dead else np.arange(12.0).reshape(4, 3)
    lone, grid = {"a": [1.0, 2, 3, 4]}, {"a": [1.0, 1, 2, 2], "b": [0.0, 1, 0, 1]}
    plots.sweep_map(tmp_path / "lone.png", lone, scores, "one field")
    plots.sweep_map(tmp_path / "grid.png", grid, scores)
    plots.sweep_map(tmp_path / "single.png", {"a": [0.0]}, scores[:1])
    assert {path.name for path in tmp_path.iterdir()} == {"lone.png", "grid.png", "single.png"}
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        height, width, _ = (image := imread(path)).shape
        assert 400 < height < 1200 and 600 < width < 1800 and np.ptp(image[..., :3]) > 0.9
    assert dict(matplotlib.rcParams) == before


def test_curves(tmp_path):
    """Interquartile means as lines, their interval as a band from five seeds on, of fewer each as a thin line; what
    died is left out."""
    x, rows = [1, 2, 3], [[1.0, 2.0, np.nan], [3.0, 6.0, 4.0]]
    many = np.random.default_rng(0).normal(size=(5, 3))
    figure = plots.curves_figure(x, {"a": rows, "b": many, "c": [[0.0, 0.0, 0.0]]}, "title", ("updates", "loss"))
    [panel] = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_title()) == ("updates", "loss", "title")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    np.testing.assert_array_equal(panel.lines[0].get_xydata(), [[1, 2], [2, 4], [3, 4]])
    np.testing.assert_array_equal(panel.lines[2].get_ydata(), [3, 6, 4])
    [band] = panel.collections
    ends = {round(end, 9) for end in aggregates.bands(many)[1:].reshape(-1)}
    assert {round(y, 9) for _, y in band.get_paths()[0].vertices} == ends
    plots.curves(tmp_path / "curves.png", x, {"a": rows})
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"must be \[S, 3\]"):
        plots.curves_figure(x, {"a": [1.0, 2.0, 3.0]})
    grid = plots.panels_figure(x, {name: {"mean": [[1.0, 2.0, 3.0]]} for name in "abc"}, ("frames", "fitness"))
    assert [panel.get_title() for panel in grid.axes] == ["a", "b", "c"]
    assert all(panel.lines[0].get_ydata().tolist() == [1, 2, 3] for panel in grid.axes)
