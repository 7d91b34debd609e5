"""What rings that sample by priority have in common (Schaul et al. 2016, arXiv 1511.05952)."""

import jax.numpy as jnp

from purerl import draw, shards
from purerl.replay import sums
from purerl.types import Array, Key, PyTree, Replay, Sample, Scalar

MIN_PRIORITY = 1e-6
"""Added to every priority, so that every usable sample can be drawn (section 3.3)."""


def finite(priority: Array) -> Array:
    """Priorities as they count: sizes, 0 for what is not finite."""
    return jnp.where(jnp.isfinite(priority), jnp.abs(priority), 0.0)


def powered(priority: Array, alpha: Scalar) -> Array:
    """``p^alpha``, which a sample's probability is proportional to (eq. 1)."""
    return (finite(priority) + MIN_PRIORITY) ** alpha


def stratified(tree: sums.Sums, key: Key, batch_size: int) -> Array:
    """``N = batch_size`` indices drawn in proportion to the values of ``tree``, one from each ``N``-th of their sum.
    Consumes ``key``."""
    return sums.find(tree, (jnp.arange(batch_size) + draw.uniform(key, (batch_size,))) / batch_size)


def importance(tree: sums.Sums, place: Array, count: Array | int, exponent: Scalar) -> Array:
    """``(M P)^-beta`` ``[N]`` of the indices ``place`` ``[N]``, which are drawn from ``M = count`` by ``tree``."""
    chance = sums.get(tree, place) / jnp.maximum(sums.total(tree), MIN_PRIORITY)
    return (jnp.maximum(chance, 1e-30) * count) ** -exponent


def normalised(replay: Replay) -> Replay:
    """``replay`` with weights divided by the largest in the batch (section 3.4), that of all `shards`."""

    def sample(state: PyTree, key: Key) -> Sample:
        drawn = replay.sample(state, key)
        largest = shards.largest(jnp.max(drawn.weight))
        return drawn._replace(weight=drawn.weight / jnp.where(largest > 0, largest, 1.0))

    return replay._replace(sample=sample)
