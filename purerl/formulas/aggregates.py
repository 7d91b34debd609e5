"""Aggregate scores over runs, with their uncertainty (Agarwal et al. 2021, arXiv 2108.13264, section 4).

A score is one number per run, such as its mean return; higher is better. Scores have the shape ``[R, tasks]``, or
``[R]`` for a single task. A non-finite score (a run that died) counts as the worst: it is replaced by ``-inf``, and all
such scores are tied. Statistics keep any leading axes ``[..., R, tasks]``, so that one call handles all resamples of a
bootstrap. All arithmetic is numpy float64.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "Estimate",
    "bootstrap_interval",
    "estimate",
    "iqm",
    "probability_of_improvement",
    "quantiles",
    "share",
    "worst",
]

LEAST = 5
"""The smallest number of runs for which an interval is reported. With fewer runs, the result of each is reported
instead."""
RESAMPLES = 200_000
"""The largest number, approximately, of scores that `bands` draws for one column."""


class Estimate(NamedTuple):
    """A statistic and the two ends of its confidence interval, which are nan where there is no interval."""

    value: Any
    low: Any
    high: Any


def _scores(scores: ArrayLike) -> np.ndarray:
    """Converts scores to float64 ``[..., R, tasks]``, with -inf in place of non-finite ones."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 0 or scores.size == 0:
        raise ValueError(f"scores must be [R] or [R, tasks] and not empty, got the shape {list(scores.shape)}")
    scores = scores[:, None] if scores.ndim == 1 else scores
    return np.where(np.isfinite(scores), scores, -np.inf)


def iqm(scores: ArrayLike) -> np.ndarray:
    """Computes the interquartile mean over runs and tasks together.

    This is the mean of what is left after dropping the lowest and the highest quarter of the ``R * tasks`` scores (each
    rounded down). It is -inf if more runs died than are dropped at the low end: more than a quarter, or, with fewer
    than four scores, any.

    Args:
        scores: ``[..., R, tasks]`` or ``[R]``.

    Returns:
        ``[...]``.

    Raises:
        ValueError: There are no scores.
    """
    scores = _scores(scores)
    scores = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    count = scores.shape[-1]
    return scores[..., count // 4 : count - count // 4].mean(axis=-1)


def worst(scores: ArrayLike, share: float) -> np.ndarray:
    """Computes the means of the lowest ``share`` of the scores: the conditional value at risk.

    Rockafellar & Uryasev 2000, eq. 4, for a sample of ``N`` scores, of which ``share * N``, rounded up, are averaged.

    Args:
        scores: ``[..., N]``.
        share: A fraction in (0, 1]. At least one score is averaged.

    Returns:
        ``[...]``.
    """
    rising = np.sort(np.asarray(scores, np.float64), axis=-1)
    return rising[..., : math.ceil(share * rising.shape[-1] - 1e-9)].mean(axis=-1)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Computes P(X > Y) + P(X = Y) / 2 for a random run of ``x`` and one of ``y``, averaged over tasks.

    For one task this is the Mann-Whitney U statistic of ``x`` divided by ``R_x * R_y``.

    Args:
        x: ``[..., R_x, tasks]`` or ``[R_x]``.
        y: ``[..., R_y, tasks]`` or ``[R_y]``.

    Returns:
        ``[...]``.

    Raises:
        ValueError: There are no scores, or ``x`` and ``y`` have different numbers of tasks.
    """
    x, y = _scores(x), _scores(y)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x has {x.shape[-1]} tasks and y has {y.shape[-1]}; they must have the same")
    runs = np.moveaxis(x, -2, 0)[..., None, :]  # [R_x, ..., 1, tasks]
    wins = sum(np.mean(run > y, axis=(-2, -1)) + np.mean(run >= y, axis=(-2, -1)) for run in runs)
    return wins / (2 * len(runs))


def bootstrap_interval(
    statistic: Callable[..., np.ndarray],
    *samples: ArrayLike,
    num_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Computes a stratified percentile bootstrap interval of ``statistic(*samples)``.

    Every task of every sample is a stratum: its runs are resampled with replacement, independently of all other strata.
    The interval is too narrow for few runs, and has zero width for a single run.

    Args:
        statistic: Called once with ``[num_resamples, R, tasks]`` for each sample; returns ``[num_resamples]``.
        *samples: Each ``[R, tasks]`` or ``[R]``; ``R`` may differ between samples.
        num_resamples: The number of bootstrap resamples.
        level: The coverage of the interval.
        seed: Seed of numpy's generator; the same seed gives the same interval.

    Returns:
        The lower and the upper end. An end is -inf if the statistic is -inf for too many resamples.

    Raises:
        ValueError: A sample is empty.
    """
    rng = np.random.default_rng(seed)
    resampled = []
    for scores in map(_scores, samples):
        index = rng.integers(len(scores), size=(num_resamples, *scores.shape))
        resampled.append(np.take_along_axis(scores[None], index, axis=1))
    low, high = quantiles(statistic(*resampled), ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def estimate(*samples: ArrayLike, statistic: Callable[..., np.ndarray] = iqm, **options: Any) -> Estimate:
    """Computes ``statistic(*samples)`` with its `bootstrap_interval`, to which ``options`` are passed.

    ``estimate(scores)`` is the interquartile mean of one set of runs;
    ``estimate(x, y, statistic=probability_of_improvement)`` compares two.
    """
    return Estimate(float(statistic(*samples)), *bootstrap_interval(statistic, *samples, **options))


def reported_estimate(*samples: ArrayLike, **options: Any) -> Estimate:
    """Computes an `estimate` for reports, from sorted samples and without an interval for few runs.

    Each sample is sorted, so that the order of runs does not change the result. The ends of the interval are nan if a
    sample has fewer than `LEAST` runs.
    """
    ordered = [np.sort(_scores(sample), axis=0) for sample in samples]
    result = estimate(*ordered, **options)
    return result if min(map(len, ordered)) >= LEAST else result._replace(low=np.nan, high=np.nan)


def share(count: ArrayLike, size: ArrayLike, level: float = 0.95) -> Estimate:
    """Computes the share of ``count`` in ``size`` independent trials, with its score interval (Wilson 1927).

    With ``p = count / size`` and ``z`` the quantile of the normal distribution, the interval has the middle
    ``(p + z^2 / 2 size) / (1 + z^2 / size)`` and the half width
    ``z sqrt(p (1 - p) / size + z^2 / 4 size^2) / (1 + z^2 / size)``. It has a width where all trials end alike.

    Args:
        count: The number of trials that count ``[...]``.
        size: The number of all trials ``[...]``.
        level: The coverage of the interval.

    Returns:
        Arrays ``[...]``, nan where there are no trials.
    """
    n = np.asarray(size, np.float64)
    n = np.where(n > 0, n, np.nan)
    p, z = np.asarray(count, np.float64) / n, NormalDist().inv_cdf((1 + level) / 2)
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return Estimate(p, np.where(p == 0, 0.0, middle - half), np.where(p == 1, 1.0, middle + half))


def bands(values: ArrayLike, level: float = 0.95) -> np.ndarray:
    """Computes the interquartile mean over runs of each column, and the ends of its bootstrap interval.

    Runs without a finite value in a column do not count in that column. A column is treated as `reported_estimate`
    treats its finite values: a resample is how often it has the lowest run, the second lowest and each further one, and
    its interquartile mean is a weighted sum of the runs. So columns with equally many runs share their resamples.

    Args:
        values: ``[R, n]``.
        level: The coverage of the interval.

    Returns:
        ``[3, n]``: mean, lower end, upper end. All are nan where no run has a finite value; the ends are nan where
        fewer than `LEAST` runs have one.
    """
    values = np.asarray(values, np.float64)
    result = np.full((3, values.shape[1]), np.nan)
    for which, known in _known(values):
        result[0, which], size = iqm(known[..., None]), known.shape[1]
        if size >= LEAST:
            weights = _kept_weights(size) if size * _resamples(size) <= RESAMPLES else _weights(size)
            means = np.stack([known @ weight for weight in weights], axis=-1)
            result[1:, which] = quantiles(means, ((1 - level) / 2, (1 + level) / 2))
    return result


def middles(values: ArrayLike) -> np.ndarray:
    """Computes the interquartile mean ``[n]`` of each column of ``values`` ``[R, n]``.

    Only the runs that have a finite value in a column count there; the result is nan where no run has one.
    """
    values = np.asarray(values, np.float64)
    result = np.full(values.shape[1], np.nan)
    for which, known in _known(values):
        result[which] = iqm(known[..., None])
    return result


def _known(values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Groups the columns of ``values`` ``[R, n]`` by their number of finite values.

    Yields for each number, except 0: which columns have that many, bool ``[n]``, and these values in ascending order,
    ``[columns, size]``.
    """
    there = np.isfinite(values)
    ordered, count = np.sort(np.where(there, values, np.nan), axis=0), np.sum(there, axis=0)  # nans last
    for size in np.unique(count[count > 0]):
        yield count == size, ordered[:size, count == size].T


def _resamples(size: int) -> int:
    return max(20, min(2000, RESAMPLES // size))


def _weights(size: int) -> Iterator[np.ndarray]:
    """Yields for each resample the weights of the runs ``[size]``, in ascending order, in its interquartile mean."""
    rng, low, high = np.random.default_rng(0), size // 4, size - size // 4
    for _ in range(_resamples(size)):
        often = np.bincount(rng.integers(size, size=size), minlength=size)
        below = np.cumsum(often)
        yield (np.clip(below, low, high) - np.clip(below - often, low, high)) / (high - low)


@functools.lru_cache(maxsize=32)
def _kept_weights(size: int) -> np.ndarray:
    """Computes all of `_weights` and keeps them."""
    return np.stack(list(_weights(size)))


def variance_shares(levels: Sequence[Sequence[Any]], scores: ArrayLike) -> np.ndarray:
    """Computes which share of the variance of scores each factor of a complete grid explains: an analysis of variance.

    With ``C`` cells of ``S`` scores, the share of a factor is the sum of squares between the means of its levels,
    divided by the total sum of squares; these are the eta squared of a balanced factorial design.

    Args:
        levels: For each of ``F`` factors its level in each cell, ``[F][C]``; each combination of levels has one cell.
        scores: ``[C, S]``, finite and not all equal.

    Returns:
        ``[F + 2]``: the shares of the factors, that of their interactions, and that of the scores within cells. They
        sum to 1.
    """
    scores = np.asarray(scores, np.float64)
    middle = scores.mean()
    cells = scores.mean(axis=1)
    total = np.sum((scores - middle) ** 2)
    between = scores.shape[1] * np.sum((cells - middle) ** 2)
    factors = []
    for factor in levels:
        which = np.unique(factor, return_inverse=True)[1]
        means = np.bincount(which, cells) / np.bincount(which)
        factors.append(scores.shape[1] * np.sum((means[which] - middle) ** 2))
    rest = max(between - sum(factors), 0.0)
    return np.array([*factors, rest, max(total - between, 0.0)]) / total


def quantiles(values: ArrayLike, qs: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> np.ndarray:
    """Computes quantiles of ``values`` over the last axis, ignoring nans.

    Metrics ``[iterations, P]`` give ``[len(qs), iterations]``. It interpolates linearly between neighbours (Hyndman &
    Fan 1996, definition 7, numpy's default); the result is infinite between a finite and an infinite neighbour.

    Args:
        values: ``[..., P]``.
        qs: Probabilities in [0, 1].

    Returns:
        ``[len(qs), ...]``; nan where all ``P`` values are nan.
    """
    values = np.sort(np.asarray(values, np.float64), axis=-1)  # nans last
    last = np.maximum(np.sum(~np.isnan(values), axis=-1) - 1, 0)
    position = np.multiply.outer(np.asarray(qs, np.float64), last)  # [len(qs), ...]
    below, above = np.floor(position).astype(int), np.ceil(position).astype(int)
    low, high = (np.take_along_axis(values[None], index[..., None], axis=-1)[..., 0] for index in (below, above))
    with np.errstate(invalid="ignore"):
        between = (1 - position + below) * low + (position - below) * high
    return np.where(low == high, low, between)
