"""What the curves of runs hold, number by number."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from purerl.display import curves, plots
from purerl.display.lines import Line
from purerl.formulas import aggregates

NAN = np.nan


def test_learning_figure():
    """A line for each run with a band where it has five agents, in colours and dashes of its own; of fewer each agent
    as a thin line."""
    x, rng = np.array([0.0, 512, 1024]), np.random.default_rng(1)
    many = rng.normal(size=(5, 3))
    lines = [Line("ppo", x, many), Line("dqn", x, many[:1]), Line("a2c", x, many[:3])]
    figure = curves.learning_figure(lines, ("frames", "loss"), "both", "three runs")
    [panel] = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_title()) == ("frames", "loss", "both")
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ppo (5 agents)", "dqn", "a2c (3 agents)"]
    expected = "three runs\ninterquartile mean; band: its 95 % bootstrap interval; thin: single agents"
    assert legend.get_title().get_text() == expected
    ppo, dqn, a2c, *thin = panel.lines
    np.testing.assert_allclose(ppo.get_xydata(), np.stack([x, aggregates.iqm(many.T[..., None])], axis=1))
    assert len(panel.collections) == 1
    [band] = panel.collections
    ends = [aggregates.estimate(np.sort(column))[1:] for column in many.T]
    drawn = {(frames, round(y, 9)) for frames, y in band.get_paths()[0].vertices}
    assert {(frames, round(end, 9)) for frames, pair in zip(x, ends, strict=True) for end in pair} <= drawn
    np.testing.assert_allclose([line.get_ydata() for line in thin], many[:3])
    assert len({line.get_color() for line in (ppo, dqn, a2c)}) == 3
    assert len({line.get_linestyle() for line in (ppo, dqn, a2c)}) == 3
    with pytest.raises(ValueError, match="nothing"):
        curves.learning_figure([], ("", ""))


@pytest.mark.parametrize("count", [2, 8])
def test_legends_cover_no_line(count):
    """They stand below the axis' label, inside of the figure, however many lines and however long their names are."""
    x = np.arange(3.0)
    given = [Line(f"a setting with a long name {i}, and another {i}", x, np.ones((5, 3))) for i in range(count)]
    figure = curves.learning_figure(given, ("frames", "return"), "title", "what the lines are " * 8)
    figure.draw_without_rendering()
    [panel], [legend] = figure.axes, figure.legends
    box, around = legend.get_window_extent(), panel.get_tightbbox()
    assert around is not None and box.y1 <= around.y0 + 1 and panel.get_window_extent().height > 200
    assert box.y0 >= 0 and 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_legends_of_panels_cover_no_line():
    """As matplotlib 29418 had it: legends of the parts of a figure, each below the panel of its part."""
    x = np.arange(3.0)
    figure = plots.panels_figure(x, {name: {"mean": np.ones((5, 3)), "best": np.ones((5, 3))} for name in "abc"})
    figure.draw_without_rendering()
    for part in figure.subfigs[:3]:
        [panel], [legend] = part.axes, part.legends
        around = panel.get_tightbbox()
        assert around is not None and legend.get_window_extent().y1 <= around.y0 + 1


def test_population_figure():
    """Nested areas around the interquartile mean; one line for one agent."""
    x, levels = np.arange(3.0), (0.05, 0.25, 0.5, 0.75, 0.95)
    quantiles = {q: q + x for q in levels}
    [panel] = curves.population_figure(x, 0.6 + x, quantiles, ("frames", "return")).axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), 0.6 + x)
    assert panel.lines[0].get_label() == "interquartile mean of agents"
    spans = [np.ptp(band.get_paths()[0].vertices[:, 1]) for band in panel.collections]
    np.testing.assert_allclose(spans, [2.9, 2.5])
    alone = curves.population_figure(x, x, dict.fromkeys(levels, x), ("frames", "return"))
    assert not alone.axes[0].collections and not alone.legends


def test_colours_differ_for_the_colour_blind():
    """In what a person without green cones sees (Vienot et al. 1999), neighbours are apart, as are the first six."""
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    seen = np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]])
    linear = np.array([to_rgb(colour) for colour in plots.COLOURS]) ** 2.2
    shown = (np.linalg.inv(to_lms) @ seen @ to_lms @ linear.T).T.clip(0, 1) ** (1 / 2.2)
    apart = np.linalg.norm(shown[:, None] - shown[None], axis=-1) + 9 * np.eye(len(shown))
    assert apart.min() > 0.1
