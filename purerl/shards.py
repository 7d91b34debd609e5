"""One agent in shards: whatever a loss, a replay or a wrapper reduces over all rows of an agent goes through here.

An agent may be cut into ``S`` shards, each with its own part of the rows ``B``, of the replay and of every minibatch
(`purerl.population.splitting`). A shard's code is the code of a whole agent; where it needs to know of the others it
asks here. Outside of a split agent there is one shard, and everything here returns what it is given.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

AXIS = "shards"
"""The name of the axis over the shards of an agent."""


def count() -> int:
    """Returns ``S``, the number of shards of the agent that is being traced; 1 for one that is not split."""
    try:
        return int(jax.lax.axis_size(AXIS))
    except NameError:
        return 1


def index() -> jax.Array | int:
    """Returns the number of this shard, 0 to ``S - 1``."""
    return jax.lax.axis_index(AXIS) if count() > 1 else 0


def own(key: jax.Array) -> jax.Array:
    """Returns a key of this shard alone. Does not consume ``key`` where the agent is not split."""
    return jax.random.fold_in(key, index()) if count() > 1 else key


def numbers(rows: int) -> jax.Array:
    """Returns the numbers ``[rows]`` (int32) of this shard's rows among those of the whole agent."""
    return jnp.arange(rows) + (index() * rows if count() > 1 else 0)


def total(tree: Any) -> Any:
    """Returns the sums over the shards; leaves of one type are summed by one collective."""
    if count() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    for dtype in dict.fromkeys(x.dtype for x in leaves):
        places = [i for i, x in enumerate(leaves) if x.dtype == dtype]
        joined = jax.lax.psum(jnp.concatenate([leaves[i].reshape(-1) for i in places]), AXIS)
        ends = np.cumsum([leaves[i].size for i in places])[:-1].tolist()
        for i, part in zip(places, jnp.split(joined, ends), strict=True):
            leaves[i] = part.reshape(leaves[i].shape)
    return jax.tree.unflatten(structure, leaves)


def mean(tree: Any) -> Any:
    """Returns the means over the shards. Each shard must have as many samples as the others."""
    if count() == 1:
        return tree
    return jax.tree.map(lambda x: x / count(), total(tree))


def largest(tree: Any) -> Any:
    """Returns the largest over the shards."""
    return jax.lax.pmax(tree, AXIS) if count() > 1 else tree


def gathered(tree: Any) -> Any:
    """Returns the rows ``[S * N, ...]`` of all shards for leaves ``[N, ...]``; `part` takes a shard's own out again."""
    if count() == 1:
        return tree
    return jax.tree.map(lambda x: jax.lax.all_gather(x, AXIS).reshape(-1, *x.shape[1:]), tree)


def part(tree: Any) -> Any:
    """Returns this shard's own rows ``[N, ...]`` of leaves ``[S * N, ...]`` that have those of all, as `gathered`."""
    if count() == 1:
        return tree
    return jax.tree.map(lambda x: x.reshape(count(), -1, *x.shape[1:])[index()], tree)


def every(condition: jax.Array) -> jax.Array:
    """Returns whether ``condition`` (bool) holds in every shard."""
    return total(jnp.where(condition, 0, 1)) == 0 if count() > 1 else condition


def joined(mean: jax.Array, variance: jax.Array, size: jax.Array | float = 1.0) -> tuple[jax.Array, jax.Array]:
    """Returns mean and variance of the elements of all shards, given those of each shard.

    Source: Chan, Golub & LeVeque 1983, eq. 2.1. Shapes stay. ``size`` is the number of elements of this shard, a
    scalar.
    """
    if count() == 1:
        return mean, variance
    sizes = jnp.broadcast_to(jnp.asarray(size, jnp.float32), mean.shape)
    of_each, means, variances = jnp.moveaxis(jax.lax.all_gather(jnp.stack([sizes, mean, variance]), AXIS), 1, 0)
    means, variances = (jnp.where(of_each > 0, x, 0.0) for x in (means, variances))
    weight = of_each / jnp.maximum(jnp.sum(of_each, axis=0, keepdims=True), 1e-30)
    middle = jnp.sum(weight * means, axis=0)
    return middle, jnp.sum(weight * (variances + jnp.square(means - middle[None])), axis=0)
