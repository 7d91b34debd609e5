"""What the curves of runs hold, number by number."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from purerl.display import curves, plots
from purerl.formulas import aggregates

NAN = np.nan


def test_binned_and_carried():
    """Means within intervals, of what is there; the latest value where there is none."""
    x, values = np.array([1.0, 2, 3, 7, 8, 20]), np.array([[1, NAN, 3, NAN, NAN, 6.0]])
    places, means = curves.binned(x, values, 4.0)
    np.testing.assert_allclose(places, [2, 7.5, 20])
    np.testing.assert_allclose(means, [[2, NAN, 6]])
    for result, given in zip(curves.binned(x, values, 0.5), (x, values), strict=True):
        np.testing.assert_array_equal(result, given)
    assert curves.width(np.arange(11.0), np.arange(501.0), np.zeros(0)) == 5
    np.testing.assert_allclose(curves.carried(np.array([[NAN, 2, NAN, NAN, 5]])), [[NAN, 2, 2, 2, 5]])


def test_learning_figure():
    """A line for each run with a band where it has five agents, in colours and dashes of its own; of fewer each agent
    as a thin line."""
    x, rng = np.array([0.0, 512, 1024]), np.random.default_rng(1)
    many = rng.normal(size=(5, 3))
    lines = [curves.Line("ppo", x, many), curves.Line("dqn", x, many[:1]), curves.Line("a2c", x, many[:3])]
    [panel] = curves.learning_figure(lines, ("frames", "loss"), "both").axes
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_title()) == ("frames", "loss", "both")
    legend = panel.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["ppo (5 agents)", "dqn", "a2c (3 agents)"]
    expected = "interquartile mean; band: its 95 % bootstrap interval; thin: single agents"
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


def test_population_figure():
    """Nested areas around the interquartile mean; one line for one agent."""
    x, levels = np.arange(3.0), (0.05, 0.25, 0.5, 0.75, 0.95)
    quantiles = {q: q + x for q in levels}
    [panel] = curves.population_figure(x, 0.6 + x, quantiles, ("frames", "return")).axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), 0.6 + x)
    assert panel.lines[0].get_label() == "interquartile mean of agents"
    spans = [np.ptp(band.get_paths()[0].vertices[:, 1]) for band in panel.collections]
    np.testing.assert_allclose(spans, [2.9, 2.5])
    [alone] = curves.population_figure(x, x, dict.fromkeys(levels, x), ("frames", "return")).axes
    assert not alone.collections and alone.get_legend() is None


def test_colours_differ_for_the_colour_blind():
    """In what a person without green cones sees (Vienot et al. 1999), neighbours are apart, as are the first six."""
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    seen = np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]])
    linear = np.array([to_rgb(colour) for colour in plots.COLOURS]) ** 2.2
    shown = (np.linalg.inv(to_lms) @ seen @ to_lms @ linear.T).T.clip(0, 1) ** (1 / 2.2)
    apart = np.linalg.norm(shown[:, None] - shown[None], axis=-1) + 9 * np.eye(len(shown))
    assert apart.min() > 0.1
