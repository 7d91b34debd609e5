"""Summaries of scores over runs, with their uncertainty (Agarwal et al. 2021, arXiv 2108.13264, section 4).

A score is one number for a run, such as its mean return. Scores are ``[R, tasks]``, or ``[R]`` where there is one
task. The greater is the better. A score that is not finite belongs to a run that died and counts as the worst: it
is taken as ``-inf``, below every other score and equal to its like. A statistic keeps the axes that stand before
these two, so that all resamples of a bootstrap are one call. Numpy float64 throughout.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Estimate(NamedTuple):
    """A statistic and the two ends of its confidence interval."""

    value: float
    low: float
    high: float


def _scores(scores: ArrayLike) -> np.ndarray:
    """``[..., R, tasks]``, with -inf for what is not finite."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 0 or scores.size == 0:
        raise ValueError(f"scores must be [R] or [R, tasks] and not empty, got the shape {list(scores.shape)}")
    scores = scores[:, None] if scores.ndim == 1 else scores
    return np.where(np.isfinite(scores), scores, -np.inf)


def iqm(scores: ArrayLike) -> np.ndarray:
    """Interquartile mean of ``[..., R, tasks]`` or ``[R]``, over runs and tasks together: ``[...]``.

    A quarter of the ``R * tasks`` scores, rounded down, is cut off at each end, and the rest is averaged. So the result
    is -inf as soon as more runs died than are cut off: more than a quarter, or any one of fewer than four. Raises
    `ValueError` if there are no scores.
    """
    scores = _scores(scores)
    scores = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    count = scores.shape[-1]
    return scores[..., count // 4 : count - count // 4].mean(axis=-1)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """P(X > Y) + P(X = Y) / 2 of a run of ``x`` against one of ``y``, averaged over tasks: ``[...]``.

    ``x`` is ``[..., R_x, tasks]`` or ``[R_x]``, ``y`` is ``[..., R_y, tasks]`` or ``[R_y]``. For one task this is the
    Mann-Whitney U of ``x`` divided by ``R_x * R_y``. Raises `ValueError` if there are no scores, or the tasks of
    ``x`` and ``y`` differ in number.
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
    """The two ends of a stratified bootstrap percentile interval of ``statistic(*samples)``.

    Each sample is ``[R, tasks]`` or ``[R]``, with an ``R`` of its own. Each task is a stratum: its ``R`` runs are drawn
    again with replacement from its own runs, apart from the other tasks and samples. ``statistic`` is called once, with
    ``[num_resamples, R, tasks]`` for each sample, and gives ``[num_resamples]``. An end is -inf where too many
    resamples are. The same seed gives the same interval.

    With few runs the interval is too narrow, and with a single one it has no width. Raises `ValueError` if a sample is
    empty.
    """
    rng = np.random.default_rng(seed)
    resampled = []
    for scores in map(_scores, samples):
        index = rng.integers(len(scores), size=(num_resamples, *scores.shape))
        resampled.append(np.take_along_axis(scores[None], index, axis=1))
    low, high = quantiles(statistic(*resampled), ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def estimate(*samples: ArrayLike, statistic: Callable[..., np.ndarray] = iqm, **options: Any) -> Estimate:
    """``statistic(*samples)`` with its `bootstrap_interval`, whose arguments are ``options``.

    ``estimate(scores)`` is the interquartile mean of one set of runs;
    ``estimate(x, y, statistic=probability_of_improvement)`` compares two.
    """
    return Estimate(float(statistic(*samples)), *bootstrap_interval(statistic, *samples, **options))


def quantiles(values: ArrayLike, qs: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> np.ndarray:
    """Quantiles ``[len(qs), ...]`` of ``values`` ``[..., P]`` over their last axis, as if the nans were not there.

    Metrics ``[iterations, P]`` give ``[len(qs), iterations]``; nan where all members are nan. Linear between two
    neighbours (Hyndman & Fan 1996, definition 7, as numpy has it), and infinite between a finite and an infinite one.
    """
    values = np.sort(np.asarray(values, np.float64), axis=-1)  # nans last
    last = np.maximum(np.sum(~np.isnan(values), axis=-1) - 1, 0)
    position = np.multiply.outer(np.asarray(qs, np.float64), last)  # [len(qs), ...]
    below, above = np.floor(position).astype(int), np.ceil(position).astype(int)
    low, high = (np.take_along_axis(values[None], index[..., None], axis=-1)[..., 0] for index in (below, above))
    with np.errstate(invalid="ignore"):
        between = (1 - position + below) * low + (position - below) * high
    return np.where(low == high, low, between)
