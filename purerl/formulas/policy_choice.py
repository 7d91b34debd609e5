"""How good a policy is that is chosen among several by few episodes (Jackson et al. 2025, arXiv 2504.11453).

That is what learning offline comes to where the settings of the training are not known beforehand: many policies are
trained, and a few episodes may be played to choose one. The policies are the arms of a bandit, and an episode is a
pull. Shapes: ``K`` policies, ``E`` episodes of each, ``R`` trials. All arithmetic is numpy float64.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from purerl.formulas.aggregates import LEAST, Estimate, quantiles

EPISODES = 1, 2, 5, 10, 20, 50, 100, 200, 500
"""The numbers of episodes after which a policy is chosen."""
RESAMPLES, TRIALS = 200, 100
"""The number of resamples of the policies, and of trials in each."""


def deviation(returns: ArrayLike) -> float:
    """Computes the standard deviation of the episodes of one policy: the root of the mean variance over ``[K, E]``."""
    return float(np.sqrt(np.mean(np.var(np.asarray(returns, np.float64), axis=1))))


def chosen(
    returns: ArrayLike, arms: np.ndarray, episodes: Sequence[int], spread: float, rng: np.random.Generator
) -> np.ndarray:
    """Plays trials of a bandit, and returns the policy that each would choose after so many ``episodes``.

    First each arm is pulled once. From then on the one with the largest upper confidence bound is pulled, ``mean +
    spread * sqrt(2 log t / n)``, after ``t`` pulls, ``n`` of them of this arm (UCB1, Auer et al. 2002, fig. 1, for
    rewards of another size than [0, 1]). A pull draws one of the arm's episodes, with replacement. The policy that is
    chosen has the highest mean of its pulls; one that was never pulled is not chosen.

    Args:
        returns: The returns of the episodes ``[K, E]``.
        arms: The policies of each trial ``[R, A]``, numbers below ``K``, in the order in which they are first pulled.
        episodes: The numbers of pulls ``[n]`` after which a policy is chosen, ascending, at least 1.
        spread: The size of the differences between episodes (`deviation`).
        rng: The source of the drawn episodes.

    Returns:
        Numbers of policies ``[R, n]``.
    """
    returns = np.asarray(returns, np.float64)
    trials, size = arms.shape
    count, total = np.zeros((2, trials, size))
    row = np.arange(trials)
    result = np.empty((trials, len(episodes)), np.int64)
    for pulls in range(episodes[-1]):
        if pulls < size:
            arm = np.full(trials, pulls)
        else:
            arm = np.argmax(total / count + spread * np.sqrt(2 * np.log(pulls) / count), axis=1)
        total[row, arm] += returns[arms[row, arm], rng.integers(returns.shape[1], size=trials)]
        count[row, arm] += 1
        if pulls + 1 in episodes:
            best = np.argmax(np.where(count > 0, total / np.maximum(count, 1), -np.inf), axis=1)
            result[:, list(episodes).index(pulls + 1)] = arms[row, best]
    return result


def estimate(
    returns: ArrayLike,
    values: ArrayLike,
    size: int,
    episodes: Sequence[int] = EPISODES,
    *,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Computes the expected return of the policy that is chosen after so many ``episodes``, with its interval.

    A trial draws ``size`` of the policies without replacement (all, if there are fewer), which `chosen` chooses among.
    The expectation is over trials. Its interval is that of a percentile bootstrap, which draws the ``K`` policies with
    replacement.

    Args:
        returns: The returns ``[K, E]`` of the episodes by which policies are chosen.
        values: What the policies are worth ``[K]``: mean returns of other episodes, for those of episodes by which a
            policy was chosen are too high.
        size: The number of policies that a trial chooses among.
        episodes: The numbers of episodes ``[n]`` after which one is chosen, ascending.
        resamples: The number of resamples of the policies.
        trials: The number of trials of each resample; the expectation itself has as many as all resamples.
        level: The coverage of the interval.
        seed: Seed of numpy's generator.

    Returns:
        Arrays ``[n]``. The ends of the interval are nan for fewer than `LEAST` policies.

    Raises:
        ValueError: There are no policies or episodes, or numbers that are not finite.
    """
    returns = np.asarray(returns, np.float64)
    values = np.asarray(values, np.float64)
    if returns.ndim != 2 or not returns.size or values.shape != returns.shape[:1]:
        raise ValueError(f"returns must be [K, E] and values [K], got {list(returns.shape)} and {list(values.shape)}")
    if not (np.isfinite(returns).all() and np.isfinite(values).all()):
        raise ValueError("returns and values must be finite")
    count = len(values)
    spread = deviation(returns)
    rng = np.random.default_rng(seed)

    def drawn(policies: np.ndarray) -> np.ndarray:
        """Returns the values of chosen policies ``[R, n]`` in trials among each row of ``policies`` ``[R, K]``."""
        arms = rng.permuted(policies, axis=1)[:, :size]
        return values[chosen(returns, arms, episodes, spread, rng)]

    everyone = np.broadcast_to(np.arange(count), (resamples * trials, count))
    value = drawn(everyone).mean(axis=0)
    if count < LEAST:
        return Estimate(value, np.full(len(episodes), np.nan), np.full(len(episodes), np.nan))
    again = np.repeat(rng.integers(count, size=(resamples, count)), trials, axis=0)
    means = drawn(again).reshape(resamples, trials, len(episodes)).mean(axis=1)
    low, high = quantiles(means.T, ((1 - level) / 2, (1 + level) / 2))
    return Estimate(value, low, high)
