"""The true next observations of truncated steps, which no row of a ring holds: one for each block of rows.

Rows of a ring form blocks of ``every`` rows. For each block of each environment one such observation is stored, that of
the truncated step that was written last. So a ring stores one next observation in ``every`` rows. It has those of all
truncated steps if no two of them are closer than that, except for some of its oldest ``every`` rows.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.types import Array, PyTree

NONE = 255
"""The value of ``row`` for a block without a next observation."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["obs", "row"], meta_fields=["every"])
@dataclasses.dataclass(frozen=True)
class Cuts:
    """The stored next observation of each block of ``every`` rows and each environment.

    ``row`` ``[blocks, B]`` (uint8) is the row within the block whose next observation is ``obs`` ``[blocks, B, ...]``,
    or `NONE`.
    """

    obs: PyTree
    row: Array
    every: int


def empty(obs: PyTree, num_rows: int, every: int) -> Cuts:
    """Makes `Cuts` without any next observation.

    Args:
        obs: One row of observations ``[B, ...]``, or its shapes.
        num_rows: The number of rows of the ring.
        every: The number of rows of a block.

    Raises:
        ValueError: ``every`` does not lie in [1, 255].
    """
    if not 1 <= every <= NONE:
        raise ValueError(f"every = {every}: must lie in [1, {NONE}]")
    blocks = -(-num_rows // every)
    next_obs = jax.tree.map(lambda x: jnp.zeros((blocks, *x.shape), x.dtype), obs)
    num_envs = jax.tree.leaves(obs)[0].shape[0]
    return Cuts(next_obs, jnp.full((blocks, num_envs), NONE, jnp.uint8), every)


def add(cuts: Cuts, position: Array, truncated: Array, next_obs: PyTree) -> Cuts:
    """Adds the truncated steps among the rows ``[T, B]`` that are written from row ``position`` on.

    ``position`` is a multiple of ``T``.
    """
    size = math.gcd(truncated.shape[0], cuts.every)  # this many rows never span two blocks
    for first in range(0, truncated.shape[0], size):
        rows = trees.take((truncated, next_obs), slice(first, first + size))
        cuts = _add(cuts, position + first, *rows)
    return cuts


def _add(cuts: Cuts, position: Array, truncated: Array, next_obs: PyTree) -> Cuts:
    """Adds rows within one block, as `add` does."""
    block, offset = position // cuts.every, position % cuts.every
    size, num_envs = truncated.shape
    index = jnp.max(jnp.where(truncated, jnp.arange(size)[:, None], -1), axis=0)  # -1: no truncated step
    stored = jax.lax.dynamic_index_in_dim(cuts.row, block, 0, keepdims=False)
    overwritten = (stored >= offset.astype(jnp.uint8)) & (stored < (offset + size).astype(jnp.uint8))
    stored = jnp.where(overwritten, NONE, stored)
    row = jnp.where(index < 0, stored, (offset + index).astype(jnp.uint8))

    def write(all_held: Array, new: Array) -> Array:
        old = jax.lax.dynamic_index_in_dim(all_held, block, 0, keepdims=False)
        last = new[jnp.maximum(index, 0), jnp.arange(num_envs)]
        kept = jnp.where((index < 0).reshape(-1, *[1] * (old.ndim - 1)), old, last)
        return jax.lax.dynamic_update_index_in_dim(all_held, kept, block, 0)

    return Cuts(
        jax.tree.map(write, cuts.obs, next_obs),
        jax.lax.dynamic_update_index_in_dim(cuts.row, row, block, 0),
        cuts.every,
    )


def holds(cuts: Cuts, row: Array, env: Array) -> Array:
    """Returns whether the next observation of the truncated step in ``row`` of ``env`` is stored.

    Bool. Indices are ``[...]``.
    """
    return cuts.row[row // cuts.every, env] == (row % cuts.every).astype(jnp.uint8)
