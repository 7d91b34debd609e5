"""Aggregate scores over runs, with their uncertainty (Agarwal et al. 2021, arXiv 2108.13264, section 4).

A score is one number per run, such as its mean return; higher is better. Scores have the shape ``[R, tasks]``, or
``[R]`` for a single task. A non-finite score (a run that died) counts as the worst: it is replaced by ``-inf``, and all
such scores are tied. Statistics keep any leading axes ``[..., R, tasks]``, so that one call handles all resamples of a
bootstrap. All arithmetic is numpy float64.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEAST = 5
"""The fewest runs of which an interval is told; of fewer each run itself is."""
RESAMPLES = 200_000
"""Scores that `bands` draws for one column, at most about."""


class Estimate(NamedTuple):
    """A statistic and the two ends of its confidence interval; nan where there is none to tell."""

    value: float
    low: float
    high: float


def _scores(scores: ArrayLike) -> np.ndarray:
    """Scores as float64 ``[..., R, tasks]``, with -inf in place of non-finite ones."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 0 or scores.size == 0:
        raise ValueError(f"scores must be [R] or [R, tasks] and not empty, got the shape {list(scores.shape)}")
    scores = scores[:, None] if scores.ndim == 1 else scores
    return np.where(np.isfinite(scores), scores, -np.inf)


def iqm(scores: ArrayLike) -> np.ndarray:
    """Interquartile mean of ``[..., R, tasks]`` or ``[R]``, over runs and tasks together: ``[...]``.

    The mean of what is left after dropping the lowest and the highest quarter of the ``R * tasks`` scores (each rounded
    down). It is -inf if more runs died than are dropped at the low end: more than a quarter, or, with fewer than four
    scores, any. Raises `ValueError` if there are no scores.
    """
    scores = _scores(scores)
    scores = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    count = scores.shape[-1]
    return scores[..., count // 4 : count - count // 4].mean(axis=-1)


def worst(scores: ArrayLike, share: float) -> np.ndarray:
    """Computes the means ``[...]`` of the lowest ``share`` of the scores ``[..., N]``, at least one: the conditional
    value at risk.

    ``share`` lies in (0, 1]. Rockafellar & Uryasev 2000, eq. 4, of a sample whose size times the share is rounded up.
    """
    rising = np.sort(np.asarray(scores, np.float64), axis=-1)
    return rising[..., : math.ceil(share * rising.shape[-1] - 1e-9)].mean(axis=-1)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """P(X > Y) + P(X = Y) / 2 for a random run of ``x`` and one of ``y``, averaged over tasks: ``[...]``.

    ``x`` is ``[..., R_x, tasks]`` or ``[R_x]``, ``y`` is ``[..., R_y, tasks]`` or ``[R_y]``. For one task this is the
    Mann-Whitney U statistic of ``x`` divided by ``R_x * R_y``. Raises `ValueError` if there are no scores, or if ``x``
    and ``y`` have different numbers of tasks.
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
    """Lower and upper end of a stratified percentile bootstrap interval of ``statistic(*samples)``.

    - ``statistic``: called once with ``[num_resamples, R, tasks]`` for each sample; returns ``[num_resamples]``.
    - ``samples``: each ``[R, tasks]`` or ``[R]``; ``R`` may differ between samples.
    - ``num_resamples``: number of bootstrap resamples.
    - ``level``: coverage of the interval.
    - ``seed``: of numpy's generator; the same seed gives the same interval.

    Every task of every sample is a stratum: its runs are resampled with replacement independently of all others. An end
    is -inf if too many resamples are. The interval is too narrow for few runs, and has zero width for a single run.
    Raises `ValueError` if a sample is empty.
    """
    rng = np.random.default_rng(seed)
    resampled = []
    for scores in map(_scores, samples):
        index = rng.integers(len(scores), size=(num_resamples, *scores.shape))
        resampled.append(np.take_along_axis(scores[None], index, axis=1))
    low, high = quantiles(statistic(*resampled), ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def estimate(*samples: ArrayLike, statistic: Callable[..., np.ndarray] = iqm, **options: Any) -> Estimate:
    """``statistic(*samples)`` with its `bootstrap_interval`, to which ``options`` are passed.

    ``estimate(scores)`` is the interquartile mean of one set of runs;
    ``estimate(x, y, statistic=probability_of_improvement)`` compares two.
    """
    return Estimate(float(statistic(*samples)), *bootstrap_interval(statistic, *samples, **options))


def told(*samples: ArrayLike, **options: Any) -> Estimate:
    """`estimate` as it is told to people: of each sample sorted, so that the order of runs changes nothing, and without
    an interval (nan) if one has fewer than `LEAST` runs."""
    ordered = [np.sort(_scores(sample), axis=0) for sample in samples]
    found = estimate(*ordered, **options)
    return found if min(map(len, ordered)) >= LEAST else found._replace(low=np.nan, high=np.nan)


def bands(values: ArrayLike, level: float = 0.95) -> np.ndarray:
    """The interquartile mean over runs of each column of ``values`` ``[R, n]``, and the ends of its bootstrap interval:
    ``[3, n]``. Runs without a finite value in a column do not count there. nan if none has one; the ends are nan where
    fewer than `LEAST` have.

    A column is as `estimate` of it, sorted: a resample is how often it has the lowest run, the second lowest, and so
    on, and its interquartile mean a weighted sum of them. So columns with equally many runs share their resamples.
    """
    values = np.asarray(values, np.float64)
    found = np.full((3, values.shape[1]), np.nan)
    for which, known in _known(values):
        found[0, which], size = iqm(known[..., None]), known.shape[1]
        if size >= LEAST:
            weights = _kept_weights(size) if size * _resamples(size) <= RESAMPLES else _weights(size)
            means = np.stack([known @ weight for weight in weights], axis=-1)
            found[1:, which] = quantiles(means, ((1 - level) / 2, (1 + level) / 2))
    return found


def middles(values: ArrayLike) -> np.ndarray:
    """The interquartile mean ``[n]`` of each column of ``values`` ``[R, n]`` over the runs that have a finite value
    there; nan if none has one."""
    values = np.asarray(values, np.float64)
    found = np.full(values.shape[1], np.nan)
    for which, known in _known(values):
        found[which] = iqm(known[..., None])
    return found


def _known(values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each number of finite values that columns of ``values`` ``[R, n]`` have: which columns have so many, and
    these, ascending, ``[columns, size]``."""
    there = np.isfinite(values)
    ordered, count = np.sort(np.where(there, values, np.nan), axis=0), np.sum(there, axis=0)  # nans last
    for size in np.unique(count[count > 0]):
        yield count == size, ordered[:size, count == size].T


def _resamples(size: int) -> int:
    return max(20, min(2000, RESAMPLES // size))


def _weights(size: int) -> Iterator[np.ndarray]:
    """What the interquartile mean of each resample weighs the runs by ``[size]``, in ascending order."""
    rng, low, high = np.random.default_rng(0), size // 4, size - size // 4
    for _ in range(_resamples(size)):
        often = np.bincount(rng.integers(size, size=size), minlength=size)
        below = np.cumsum(often)
        yield (np.clip(below, low, high) - np.clip(below - often, low, high)) / (high - low)


@functools.lru_cache(maxsize=32)
def _kept_weights(size: int) -> np.ndarray:
    """All of `_weights`."""
    return np.stack(list(_weights(size)))


def quantiles(values: ArrayLike, qs: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> np.ndarray:
    """Quantiles ``[len(qs), ...]`` of ``values`` ``[..., P]`` over the last axis, ignoring nans.

    Metrics ``[iterations, P]`` give ``[len(qs), iterations]``; the result is nan where all members are nan. Linear
    interpolation between neighbours (Hyndman & Fan 1996, definition 7, numpy's default); infinite between a finite and
    an infinite neighbour.
    """
    values = np.sort(np.asarray(values, np.float64), axis=-1)  # nans last
    last = np.maximum(np.sum(~np.isnan(values), axis=-1) - 1, 0)
    position = np.multiply.outer(np.asarray(qs, np.float64), last)  # [len(qs), ...]
    below, above = np.floor(position).astype(int), np.ceil(position).astype(int)
    low, high = (np.take_along_axis(values[None], index[..., None], axis=-1)[..., 0] for index in (below, above))
    with np.errstate(invalid="ignore"):
        between = (1 - position + below) * low + (position - below) * high
    return np.where(low == high, low, between)
