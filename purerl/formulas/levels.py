"""Results of play in levels and how much there is to learn in them: scores of unsupervised environment design."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.formulas import returns
from purerl.types import Array, Scalar


class Played(NamedTuple):
    """Results of the episodes in each of ``B`` levels, all ``[B]``.

    ``finished`` (bool) is whether an episode ended there. Only finished episodes count; if there is none, the
    unfinished one counts. ``best``, ``mean`` and ``variance`` are those of the undiscounted returns, ``solved`` is the
    fraction of returns above the limit, ``value`` the mean over episodes of an episode's mean value, and ``gain`` the
    mean over episodes of an episode's mean positive advantage.
    """

    finished: Array
    best: Array
    mean: Array
    variance: Array
    solved: Array
    value: Array
    gain: Array


def played(reward: Array, last: Array, value: Array, advantage: Array, limit: Scalar | None) -> Played:
    """Summarises a trajectory that began in ``B`` levels, each of which began again where an episode ended.

    Args:
        reward: ``[T, B]``.
        last: ``[T, B]`` bool, whether an episode ended at the step.
        value: ``[T, B]``, the critic's values.
        advantage: ``[T, B]``.
        limit: An episode is solved if its return lies above it; None: no episode is.
    """
    of_steps = jnp.stack([reward, jnp.ones_like(reward), value, jnp.maximum(advantage, 0.0)])
    zeros, ones = jnp.zeros_like(reward), jnp.ones_like(reward)
    rest_of = jax.vmap(lambda x, end: returns.gae(x, zeros[:, 0], zeros[:, 0], ones[:, 0], end, 1.0), 1, 1)
    total, length, values, gains = jax.vmap(rest_of, (0, None))(of_steps, last)  # over the rest of the episode, [T, B]
    first = jnp.concatenate([jnp.ones_like(last[:1]), last[:-1]])
    ends = jnp.flip(jax.lax.cummax(jnp.flip(last.astype(jnp.int32), 0)), 0) > 0
    finished = jnp.any(last, axis=0)
    counts = first & (ends | ~finished[None])
    number = jnp.sum(counts, axis=0)
    mean = lambda x: jnp.sum(jnp.where(counts, x, 0.0), axis=0) / number
    middle = mean(total)
    return Played(
        finished,
        best=jnp.max(jnp.where(counts, total, -jnp.inf), axis=0),
        mean=middle,
        variance=mean(jnp.square(total - middle[None])),
        solved=mean(jnp.where(total > limit, 1.0, 0.0)) if limit is not None else jnp.zeros_like(middle),
        value=mean(values / length),
        gain=mean(gains / length),
    )


def max_monte_carlo(of: Played, best: Array) -> Array:
    """Computes the largest return ``best`` ``[B]`` ever reached in a level, less the critic's mean value there.

    MaxMC (Jiang et al. 2021, arXiv 2110.02439, section 4). Returns are undiscounted and values are not, so that long
    levels score too high.
    """
    return best - of.value


def positive_value_loss(of: Played, best: Array) -> Array:
    """Returns the mean positive advantage ``[B]`` (Jiang et al. 2021, arXiv 2110.02439, section 4).

    ``best`` is not used.
    """
    return of.gain


def learnability(of: Played, limit: Scalar | None) -> Array:
    """Computes ``p (1 - p)`` ``[B]``, where ``p`` is the probability that a level is solved.

    Without a limit it is the variance of returns. SFL (Rutherford et al. 2024, arXiv 2408.15099, section 4). For
    returns of 0 or 1 both are the same.
    """
    return of.variance if limit is None else of.solved * (1 - of.solved)


def regret(antagonist: Played, protagonist: Played) -> Array:
    """Computes the reward of PAIRED's teacher ``[B]``: the antagonist's best return less the protagonist's mean.

    It is at least 0. Dennis et al. 2020 (arXiv 2012.02096), section 5, with the maximum over episodes of its published
    code.
    """
    return jnp.maximum(antagonist.best - protagonist.mean, 0.0)
