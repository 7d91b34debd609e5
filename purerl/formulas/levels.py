"""What came of play in levels, and how much there is to learn in them: scores of unsupervised environment design."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.formulas import returns
from purerl.types import Array, Scalar


class Played(NamedTuple):
    """What came of the episodes in each of ``B`` levels, all ``[B]``.

    ``finished`` (bool) tells whether an episode ended there; only such ones count, or else the part of one that there
    was. ``best``, ``mean`` and ``variance`` are of their undiscounted returns, ``solved`` is the share of returns above
    the limit, ``value`` the mean over episodes of an episode's mean value, and ``gain`` that of its mean positive
    advantage.
    """

    finished: Array
    best: Array
    mean: Array
    variance: Array
    solved: Array
    value: Array
    gain: Array


def played(reward: Array, last: Array, value: Array, advantage: Array, limit: Scalar | None) -> Played:
    """Sums up what came of a trajectory that began in ``B`` levels, each of which began again where an episode ended.

    - ``reward, last, value, advantage``: ``[T, B]``.
    - ``limit``: an episode is solved by a return above it; None: none is.
    """
    of_steps = jnp.stack([reward, jnp.ones_like(reward), value, jnp.maximum(advantage, 0.0)])
    zeros, ones = jnp.zeros_like(reward), jnp.ones_like(reward)
    rest_of = jax.vmap(lambda x, end: returns.gae(x, zeros[:, 0], zeros[:, 0], ones[:, 0], end, 1.0), 1, 1)
    total, length, values, gains = jax.vmap(rest_of, (0, None))(of_steps, last)  # of the rest of an episode, [T, B]
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
    """Returns the largest return ``best`` ``[B]`` ever seen in a level, less the mean value that the critic has there.

    MaxMC (Jiang et al. 2021, arXiv 2110.02439, section 4). Returns are undiscounted and values are not, so that long
    levels score too high.
    """
    return best - of.value


def positive_value_loss(of: Played, best: Array) -> Array:
    """Returns the mean positive advantage ``[B]`` (Jiang et al. 2021, arXiv 2110.02439, section 4); ``best`` does not
    count."""
    return of.gain


def learnability(of: Played, limit: Scalar | None) -> Array:
    """Returns ``p (1 - p)`` ``[B]``, where a level is solved with probability ``p``; without a limit the variance of
    returns.

    SFL (Rutherford et al. 2024, arXiv 2408.15099, section 4). Of returns that are 0 or 1 both are the same.
    """
    return of.variance if limit is None else of.solved * (1 - of.solved)


def regret(antagonist: Played, protagonist: Played) -> Array:
    """Returns the antagonist's best return less the protagonist's mean ``[B]``, at least 0: what PAIRED's teacher is
    paid.

    Dennis et al. 2020 (arXiv 2012.02096), section 5, with the maximum over episodes of its published code.
    """
    return jnp.maximum(antagonist.best - protagonist.mean, 0.0)
