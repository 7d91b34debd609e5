"""Functions that the replays that sample by priority share (Schaul et al. 2016, arXiv 1511.05952)."""

import jax.numpy as jnp

from purerl import draw, shards
from purerl.replay import sums
from purerl.types import Array, Key, PyTree, Replay, Sample, Scalar

MIN_PRIORITY = 1e-6
"""The number that is added to every priority, so that every usable sample can be drawn (section 3.3)."""


def finite(priority: Array) -> Array:
    """Returns the absolute values of priorities, with 0 for those that are not finite."""
    return jnp.where(jnp.isfinite(priority), jnp.abs(priority), 0.0)


def powered(priority: Array, alpha: Scalar) -> Array:
    """Computes ``p^alpha``, to which a sample's probability is proportional (eq. 1)."""
    return (finite(priority) + MIN_PRIORITY) ** alpha


def stratified(tree: sums.Sums, key: Key, batch_size: int) -> Array:
    """Draws ``N = batch_size`` indices in proportion to the values of ``tree``, one from each ``N``-th of their sum.

    Args:
        tree: The sums of the values.
        key: Consumed.
        batch_size: The number of indices ``N``.
    """
    return sums.find(tree, (jnp.arange(batch_size) + draw.uniform(key, (batch_size,))) / batch_size)


def importance(tree: sums.Sums, place: Array, count: Array | int, exponent: Scalar) -> Array:
    """Computes the weights ``(M P)^-beta`` ``[N]`` of the indices ``place`` ``[N]``, with ``beta = exponent``.

    ``M = count`` is the number of samples, and ``P`` the probability with which ``tree`` draws an index.
    """
    chance = sums.get(tree, place) / jnp.maximum(sums.total(tree), MIN_PRIORITY)
    return (jnp.maximum(chance, 1e-30) * count) ** -exponent


def normalised(replay: Replay) -> Replay:
    """Divides the weights of ``replay`` by the largest in the batch (section 3.4), over all `shards`."""

    def sample(state: PyTree, key: Key) -> Sample:
        drawn = replay.sample(state, key)
        largest = shards.largest(jnp.max(drawn.weight))
        return drawn._replace(weight=drawn.weight / jnp.where(largest > 0, largest, 1.0))

    return replay._replace(sample=sample)
