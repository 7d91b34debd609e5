"""A sum tree: draws an index with probability proportional to its non-negative value, such as a priority.

The tree has fan-out ``K`` (Zhang et al. 2021, arXiv 2110.01101, section IV): the lowest level holds the values, every
other level the sums of ``K`` neighbours of the level below, up to a top level of at most ``K`` entries. Sums are always
recomputed from the level below, never updated by differences, so that rounding errors do not accumulate.
"""

import itertools

import jax.numpy as jnp

from purerl.types import Array

FAN_OUT = 8
"""The number of entries ``K`` that one sum adds up."""

NOWHERE = 2**31 - 1
"""An index that belongs to no value."""

Sums = tuple[Array, ...]
"""Levels ``[groups, K]``, the values first, padded with zeros to a multiple of ``K``; the top level has one group."""


def init(size: int, fan_out: int = FAN_OUT) -> Sums:
    """Makes a tree of ``size`` values, all zero."""
    levels = []
    while True:
        groups = -(-size // fan_out)
        levels.append(jnp.zeros((groups, fan_out)))
        if groups == 1:
            return tuple(levels)
        size = groups


def total(sums: Sums) -> Array:
    """Computes the sum of all values."""
    return jnp.sum(sums[-1])


def get(sums: Sums, index: Array) -> Array:
    """Returns the values at ``index`` ``[N]``."""
    return sums[0][index // sums[0].shape[1], index % sums[0].shape[1]]


def put(sums: Sums, index: Array, values: Array) -> Sums:
    """Writes ``values`` ``[N]`` at ``index`` ``[N]``.

    For an index that occurs several times the largest value is written; at `NOWHERE` nothing is.

    A scatter-min with ``values`` (rather than with 0) precedes the scatter-max. Both then depend on ``values``, so that
    XLA schedules both after what ``values`` were computed from, and can update the level in place.
    """
    fan_out = sums[0].shape[1]
    group, place = index // fan_out, index % fan_out
    level = sums[0].at[group, place].min(values).at[group, place].max(values)
    return _renew((level, *sums[1:]), group)


def _renew(sums: Sums, groups: Array) -> Sums:
    """Recomputes the sums of ``groups`` ``[N]`` of the lowest level, and all sums above that contain them."""
    levels = list(sums)
    for below in range(len(levels) - 1):
        fan_out = levels[below].shape[1]
        added = jnp.sum(levels[below][groups], axis=1)
        levels[below + 1] = levels[below + 1].at[groups // fan_out, groups % fan_out].set(added)
        groups = groups // fan_out
    return tuple(levels)


def find(sums: Sums, fraction: Array) -> Array:
    """Finds the indices ``[N]`` at which the running sum of the values first exceeds ``fraction`` of their total.

    With fractions ``[N]`` uniform in [0, 1), index ``i`` is drawn with probability ``value[i] / total``. As long as one
    value is positive, an index of value zero is never returned, whatever the rounding: running sums are accumulated
    sequentially, so that adding zero leaves them unchanged, and the descent only enters children of positive sum.
    """
    index = jnp.zeros(fraction.shape, jnp.int32)
    left = fraction * total(sums)
    for level in reversed(sums):
        running = jnp.stack(list(itertools.accumulate(level[index].T)))  # [K, N]
        left = jnp.clip(left, 0.0, running[-1] * (1 - 2**-23))
        passed = running[:-1] <= left[None]
        index = index * level.shape[1] + jnp.sum(passed, axis=0)
        left = left - jnp.max(running[:-1], axis=0, initial=0.0, where=passed)
    return index
