"""Statistics against scipy, against their definitions as explicit loops, and against known distributions."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.stats

from purerl.formulas import aggregates

INF, NAN = np.inf, np.nan


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (4,), (7,), (8,), (8, 1), (5, 3), (10, 26)])
def test_iqm_is_a_trimmed_mean(shape):
    """rliable's definition: `scipy.stats.trim_mean` with a quarter off each end of the flattened scores."""
    scores = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(aggregates.iqm(scores), scipy.stats.trim_mean(scores, 0.25, axis=None), rtol=1e-12)


def test_iqm_keeps_leading_axes():
    scores = np.random.default_rng(1).normal(size=(2, 3, 5, 4))
    expected = [[aggregates.iqm(scores[i, j]) for j in range(3)] for i in range(2)]
    np.testing.assert_array_equal(aggregates.iqm(scores), expected)


@pytest.mark.parametrize("dead", [NAN, -INF, INF])
def test_iqm_of_runs_that_died(dead):
    """Of 8 runs two may die. The third lies in the middle half."""
    assert aggregates.iqm([5, 1, dead, 4, 2, dead, 6, 3]) == np.mean([1, 2, 3, 4])
    assert aggregates.iqm([dead, 1, dead, 4, 2, dead, 6, 3]) == -INF
    assert aggregates.iqm([dead, 1, 2]) == -INF
    assert aggregates.iqm([dead] * 5) == -INF


@pytest.mark.parametrize("scores", [[], np.zeros((3, 0)), 1.0])
def test_no_scores(scores):
    with pytest.raises(ValueError, match="not empty"):
        aggregates.iqm(scores)


@pytest.mark.parametrize("ties", [False, True])
def test_probability_of_improvement_is_mann_whitney(ties):
    rng = np.random.default_rng(2)
    for r_x, r_y in ((1, 1), (8, 8), (3, 10)):
        x, y = rng.normal(0.3, size=r_x), rng.normal(size=r_y)
        x, y = (np.round(x), np.round(y)) if ties else (x, y)
        expected = scipy.stats.mannwhitneyu(x, y).statistic / (r_x * r_y)
        np.testing.assert_allclose(aggregates.probability_of_improvement(x, y), expected, rtol=1e-12)


def test_probability_of_improvement_by_counting():
    """Two tasks, ties, and runs that died: every pair of runs is looked at."""
    x = np.array([[1.0, 5.0], [2.0, NAN], [3.0, 7.0]])
    y = np.array([[2.0, -INF], [0.0, 6.0]])
    worst = [np.where(np.isnan(z), -INF, z) for z in (x, y)]
    points = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for task in range(2)
        for a, b in itertools.product(worst[0][:, task], worst[1][:, task])
    ]
    assert aggregates.probability_of_improvement(x, y) == pytest.approx(np.mean(points))
    assert aggregates.probability_of_improvement(y, x) == pytest.approx(1 - np.mean(points))
    with pytest.raises(ValueError, match="2 tasks and y has 1"):
        aggregates.probability_of_improvement(x, y[:, :1])


def test_interval_against_scipy():
    """The same percentile interval, up to what 20,000 resamples leave to chance."""
    x, y = (np.random.default_rng(seed).gamma(2, size=12) for seed in (3, 4))
    for statistic, one, data in (
        (aggregates.iqm, lambda a, axis: scipy.stats.trim_mean(a, 0.25, axis=axis), (x,)),
        (
            aggregates.probability_of_improvement,
            lambda a, b, axis: scipy.stats.mannwhitneyu(a, b, axis=axis).statistic / 144,
            (x, y),
        ),
    ):
        options = {"n_resamples": 20_000, "method": "percentile", "rng": np.random.default_rng(0)}
        expected = scipy.stats.bootstrap(data, one, **options).confidence_interval
        interval = aggregates.bootstrap_interval(statistic, *data, num_resamples=20_000)
        np.testing.assert_allclose(interval, expected, atol=0.02)


def test_interval_of_two_runs():
    """The mean of two runs drawn from {0, 1} is 0, 1/2 or 1, with probabilities 1/4, 1/2 and 1/4."""
    assert aggregates.bootstrap_interval(aggregates.iqm, [0.0, 1.0], level=0.4) == (0.5, 0.5)
    assert aggregates.bootstrap_interval(aggregates.iqm, [0.0, 1.0], level=0.9) == (0.0, 1.0)


def test_coverage():
    """The interval at 95 % holds the true value of about 95 of 100 experiments: the centre of a normal distribution."""
    rng, trials = np.random.default_rng(5), 400
    covered = 0
    for trial in range(trials):
        scores = rng.normal(3.0, size=(15, 2))
        low, high = aggregates.bootstrap_interval(aggregates.iqm, scores, num_resamples=500, seed=trial)
        covered += low <= 3.0 <= high
    assert 0.91 < covered / trials < 0.98


def test_resamples_are_stratified():
    """Every resample has R runs of each task, drawn with replacement from that task, and the tasks apart."""
    num_runs = 6
    scores = np.stack([np.arange(num_runs), 1e6 + np.arange(num_runs)], axis=1)
    other = -1 - np.arange(4.0)
    seen = []

    def statistic(x, y):
        seen.append((x, y))
        return x.mean(axis=(-2, -1))

    aggregates.bootstrap_interval(statistic, scores, other, num_resamples=3000)
    [(x, y)] = seen
    assert x.shape == (3000, num_runs, 2) and y.shape == (3000, 4, 1)
    assert set(np.unique(y)) == set(other)
    for task in range(2):
        values, counts = np.unique(x[:, :, task], return_counts=True)
        np.testing.assert_array_equal(values, scores[:, task])
        assert scipy.stats.chisquare(counts).pvalue > 1e-3
    assert np.any(x[:, :, 1] - 1e6 != x[:, :, 0])
    assert abs(np.corrcoef(x[:, :, 0].ravel(), x[:, :, 1].ravel())[0, 1]) < 0.03


def test_interval_with_runs_that_died():
    """Three dead of 8: the estimate is -inf, but some resamples have fewer dead."""
    scores = np.array([1.0, 2, 3, 4, 5, NAN, NAN, NAN])
    value, low, high = aggregates.estimate(scores)
    assert value == low == -INF and 1 < high < 5
    assert aggregates.estimate([NAN] * 4) == (-INF, -INF, -INF)
    assert aggregates.estimate([2.0]) == (2.0, 2.0, 2.0)


def test_estimate_is_its_parts():
    x, y = np.random.default_rng(6).normal(size=(2, 8, 3))
    result = aggregates.estimate(x, level=0.8, seed=7)
    assert result.value == aggregates.iqm(x)
    assert result[1:] == aggregates.bootstrap_interval(aggregates.iqm, x, level=0.8, seed=7)
    assert result != aggregates.estimate(x, level=0.8, seed=8)
    assert result.low < result.value < result.high
    better = aggregates.estimate(x + 1, x, statistic=aggregates.probability_of_improvement)
    assert 0.5 < better.low < better.value < better.high <= 1
    assert better.value == aggregates.probability_of_improvement(x + 1, x)


def test_quantiles_against_numpy():
    values = np.random.default_rng(8).normal(size=(9, 7))
    qs = (0.05, 0.25, 0.5, 0.75, 0.95)
    np.testing.assert_allclose(aggregates.quantiles(values), np.quantile(values, qs, axis=1), rtol=1e-12)
    values[np.random.default_rng(9).random(values.shape) < 0.4] = NAN
    values[4] = NAN
    result = aggregates.quantiles(values, (0.0, 0.3, 1.0))
    for row, column in zip(values, result.T, strict=True):
        kept = row[~np.isnan(row)]
        expected = np.quantile(kept, (0.0, 0.3, 1.0)) if kept.size else [NAN] * 3
        np.testing.assert_allclose(column, expected, rtol=1e-12)


def test_quantiles_of_infinite_values():
    values = [-INF, 1.0, 3.0, INF, NAN]
    np.testing.assert_array_equal(
        aggregates.quantiles(values, (0, 0.1, 1 / 3, 0.5, 0.9, 1)), [-INF, -INF, 1, 2, INF, INF]
    )


def test_bands_are_estimates_of_each_column():
    """Of what is there, in any order; from five runs on, and alike for all columns."""
    values = np.random.default_rng(0).normal(size=(7, 5))
    values[2, 1], values[:3, 2], values[:, 3], values[4, 4] = np.nan, np.inf, np.nan, 50.0
    result = aggregates.bands(values)
    for column in (0, 1, 4):
        known = values[np.isfinite(values[:, column]), column]
        np.testing.assert_allclose(result[:, column], aggregates.estimate(np.sort(known)))
        np.testing.assert_allclose(result[:, column], aggregates.reported_estimate(known[::-1]))
    np.testing.assert_allclose(result[:, 2], [aggregates.iqm(values[3:, 2]), np.nan, np.nan])
    assert np.isnan(result[:, 3]).all()
    np.testing.assert_array_equal(aggregates.middles(values), result[0])


def test_bands_of_many_runs_keep_little():
    """A standard normal's interquartile mean has a standard deviation of 1.09 / sqrt(n)."""
    values = np.random.default_rng(1).normal(size=(20_000, 1))
    value, low, high = aggregates.bands(values)[:, 0]
    assert low < value < high and 1.0 < (high - low) * np.sqrt(20_000) < 6.0
    assert aggregates._kept_weights.cache_info().currsize <= 32


def test_no_interval_of_fewer_than_five_runs():
    few = aggregates.reported_estimate([1.0, 2.0, 3.0, 4.0])
    assert few.value == 2.5 and np.isnan(few[1:]).all()
    assert np.isnan(
        aggregates.reported_estimate(np.arange(5.0), [1.0], statistic=aggregates.probability_of_improvement).low
    )
    died = aggregates.reported_estimate([1.0, 2.0, 3.0, 4.0, np.nan])
    assert died.value == 2.0 and died.low == -np.inf


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.05, 2), (0.1, 4), (1.0, 40), (0.3, 12)])
def test_worst_is_the_mean_of_the_lowest(share, count):
    scores = np.random.default_rng(3).normal(size=(2, 40))
    by_hand = [np.mean(sorted(row)[:count]) for row in scores]
    np.testing.assert_allclose(aggregates.worst(scores, share), by_hand, rtol=1e-12)


@pytest.mark.parametrize(
    ("count", "size", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share(count, size, low, high):
    """The values of Newcombe 1998, table I; both ends solve (p - x)^2 = z^2 x (1 - x) / n."""
    value, *ends = aggregates.share(count, size)
    np.testing.assert_allclose([value, *ends], [count / size, low, high], atol=5e-5)
    for x in ends:
        np.testing.assert_allclose((value - x) ** 2, 1.959963984540054**2 * x * (1 - x) / size, atol=1e-12)


def test_shares_of_many_and_of_none():
    value, low, high = aggregates.share([0, 5, 10, 0], [10, 10, 10, 0])
    np.testing.assert_allclose(value, [0, 0.5, 1, np.nan])
    np.testing.assert_allclose(low[:3] + high[2::-1], 1)
    assert low[0] == 0 and high[2] == 1 and np.isnan([low[3], high[3]]).all()
