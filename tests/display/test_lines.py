"""Which curves a figure has, and what they hold, number by number."""

import itertools

import numpy as np
import pytest

from purerl.display import lines
from purerl.display.lines import Line, readable

NAN = np.nan


def constant(value, **settings):
    """A line of two members that earn ``value`` - 1 and ``value`` + 1 at two points."""
    return Line(f"{settings}", np.array([1.0, 2.0]), np.array([[value - 1] * 2, [value + 1] * 2]), settings)


def test_binned_and_carried():
    """Means within intervals, of what is there; the latest value where there is none."""
    x, values = np.array([1.0, 2, 3, 7, 8, 20]), np.array([[1, NAN, 3, NAN, NAN, 6.0]])
    places, means = lines.binned(x, values, 4.0)
    np.testing.assert_allclose(places, [2, 7.5, 20])
    np.testing.assert_allclose(means, [[2, NAN, 6]])
    for result, given in zip(lines.binned(x, values, 0.5), (x, values), strict=True):
        np.testing.assert_array_equal(result, given)
    assert lines.width(np.arange(11.0), np.arange(501.0), np.zeros(0)) == 5
    np.testing.assert_allclose(lines.carried(np.array([[NAN, 2, NAN, NAN, 5]])), [[NAN, 2, 2, 2, 5]])


def test_eight_curves_stay_as_they_are():
    given = [constant(i, a=i) for i in range(8)]
    drawn = readable(given)
    assert [line.name for line in drawn.lines] == [line.name for line in given]
    assert (drawn.setting, drawn.offered, drawn.told) == ("", ["a"], "")
    assert drawn.lines[0].label == "{'a': 0} (2 agents)"


def test_nine_curves_become_those_of_the_setting_that_explains_most():
    """Of three settings: ``a`` moves the last value by 10, ``b`` by 1, and ``c`` is the same everywhere."""
    given = [constant(10.0 * a + b, a=a, b=b, c=7) for a, b in itertools.product((2, 1, 3), (0, 1, 2))]
    drawn = readable(given)
    assert drawn.offered == ["a", "b"] and drawn.setting == "a"
    assert [line.label for line in drawn.lines] == [f"a {a} (3 configurations, 6 agents)" for a in (1, 2, 3)]
    np.testing.assert_array_equal(drawn.lines[0].values[:, 0], [9, 11, 10, 12, 11, 13])
    # last values 10 to 12, 20 to 22 and 30 to 32: within 3 * 2 / (9 - 3) = 1, in all (3 * 200 + 6) / 8 = 75.75
    assert drawn.told == (
        "9 configurations, one curve for each value of a, the setting that explains most of their last values "
        "(99 % of the variance)"
    )
    assert readable(given, "b").told == "9 configurations, one curve for each value of b"
    assert readable(given, "c").setting == readable(given, "d").setting == "a"


def test_what_a_setting_explains():
    """1 - (SSW / (n - k)) / (SST / (n - 1)), with what died as the worst; 0 where that is less, or nothing is known."""
    pairs = {"x": [0, 1], "y": [2, 3]}
    assert lines._share(np.array([1.0, 3, 5, 7]), pairs) == pytest.approx(1 - (4 / 2) / (20 / 3))
    assert lines._share(np.array([NAN, 3, 5, 7]), pairs) == pytest.approx(1 - (2 / 2) / (11 / 3))
    assert lines._share(np.array([1.0, 7, 1, 7]), pairs) == 0
    assert lines._share(np.array([1.0, 1, 1, 1]), pairs) == 0
    assert lines._share(np.array([NAN] * 4), pairs) == 0
    assert lines._share(np.arange(4.0), {name: [i] for i, name in enumerate("abcd")}) == 0


def test_many_values_of_a_setting_share_curves():
    """Numbers in four ranges, beside configurations that have none; of texts all after the seventh together."""
    numbers = [constant(x, a=float(x)) for x in (8, 1, 2, 3, 4, 5, 6, 7, 9)] + [constant(0)]
    drawn = readable(numbers)
    assert [line.name for line in drawn.lines] == ["a 1 to 3", "a 4 to 5", "a 6 to 7", "a 8 to 9", "a none"]
    assert [line.joined for line in drawn.lines] == [3, 2, 2, 2, 1]
    assert "one curve for each group of values of a" in drawn.told
    texts = [constant(i, run=f"run {i}") for i in range(10)]
    drawn = readable(texts)
    assert [line.name for line in drawn.lines] == [f"run {i}" for i in range(7)] + ["3 others"]
    assert drawn.told == "10 configurations, one curve for each run"


def test_joined_lines_have_all_their_members_as_long_as_each_lasts():
    """On other frames than the others' a member has its latest value; after its own end it has none."""
    short = Line("short", np.array([1.0, 3.0]), np.array([[10.0, 30.0], [NAN, 40.0]]), {"a": 1})
    long = Line("long", np.array([2.0, 4.0]), np.array([[1.0, NAN]]), {"a": 1})
    other = Line("other", np.array([4.0]), np.array([[5.0]]), {"a": 2})
    first, second = readable([short, long, other], "a").lines
    np.testing.assert_array_equal(first.x, [1, 2, 3, 4])
    np.testing.assert_array_equal(first.values, [[10, 10, 30, NAN], [NAN, NAN, 40, NAN], [NAN, 1, 1, 1]])
    assert (first.joined, second.joined, second.label) == (2, 1, "a 2 (1 configuration)")


def test_long_lines_have_few_points():
    """Neighbours are averaged within intervals that are the same for all lines."""
    x = np.arange(1.0, 1001.0)
    given = [Line("a", x, x[None]), Line("b", x[:500], np.full((1, 500), 3.0))]
    first, second = readable(given).lines
    np.testing.assert_array_equal(first.x, 10 * np.arange(lines.POINTS) + 5.5)
    np.testing.assert_array_equal(first.values, [first.x])
    assert second.x.shape == (50,) and set(second.values[0]) == {3}


# What users of other libraries have reported, as it is here.


def test_two_equal_runs_joined_are_each_of_them():
    """A straight line of 500 points twice is itself, at the same frames (wandb/wandb 4879, 1566)."""
    x = np.arange(1.0, 501.0) * 1000
    twice = [Line("a", x, x[None], {"a": 1, "run": "1"}), Line("b", x, x[None], {"a": 1, "run": "2"})]
    other = Line("c", x, x[None], {"a": 2, "run": "3"})
    [alone] = readable(twice[:1]).lines
    joined = readable([*twice, other], "a").lines[0]
    np.testing.assert_array_equal(joined.x, alone.x)
    np.testing.assert_array_equal(joined.values, np.repeat(alone.values, 2, axis=0))
    np.testing.assert_array_equal(joined.values, np.stack([joined.x] * 2))


def test_a_longer_run_beside_it_moves_no_curve():
    """Runs of 10 points have the same curve with and without others of 20 (wandb/wandb 6672)."""
    short = [Line(f"{i}", np.arange(1.0, 11.0), np.arange(10.0)[None] + i, {"epochs": 10}) for i in range(3)]
    long = [Line(f"{i}", np.arange(1.0, 21.0), np.zeros((1, 20)), {"epochs": 20}) for i in range(3)]
    alone = readable([*short, short[0]._replace(settings={"epochs": 0})], "epochs").lines[1]
    beside = readable(short + long, "epochs").lines[0]
    assert alone.name == beside.name == "epochs 10"
    np.testing.assert_array_equal(alone.x, beside.x)
    np.testing.assert_array_equal(alone.values, beside.values)


def test_small_and_close_numbers_have_names_of_their_own():
    """Learning rates of 1e-5 are told (wandb/wandb 6931), and numbers that differ in the fifth digit do not mix."""
    drawn = readable([constant(i, lr=i * 1e-5) for i in range(1, 4)], "lr")
    assert [line.name for line in drawn.lines] == ["lr 1e-05", "lr 2e-05", "lr 3e-05"]
    close = [constant(i, gamma=gamma) for i, gamma in enumerate((0.9999, 0.99991, 0.99995))]
    assert [line.name for line in readable(close, "gamma").lines] == ["gamma 0.9999", "gamma 0.99991", "gamma 0.99995"]


def test_large_whole_numbers_are_ranges_too():
    """A float of such a number is another number."""
    values = [0.5, *(2**60 + i for i in range(9))]
    drawn = readable([constant(i, seed_of=value) for i, value in enumerate(values)], "seed_of")
    assert len(drawn.lines) == 4
