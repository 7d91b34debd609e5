"""A buffer of levels with scores: which are replayed, and which are replaced.

Prioritised level replay (Jiang et al. 2021, arXiv 2010.03934, section 3).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw, trees
from purerl.formulas.levels import Played
from purerl.types import Array, Key, PyTree, Scalar

Score = Callable[[Played, Array], Array]
"""``(played [B], best [B]) -> score [B]``; ``best`` is the largest return ever reached in each level."""


class Buffer(NamedTuple):
    """``C`` places for levels, of which the first ``size`` (int32) are occupied.

    ``levels`` leads with ``[C]``; ``score``, ``best`` (the largest return), ``stamp`` (int32, when the level was last
    played) and ``mark`` (uint32 ``[C, 2]``, which identifies a level) are ``[C]``. ``clock`` (int32) counts batches.
    """

    levels: PyTree
    score: Array
    best: Array
    stamp: Array
    mark: Array
    size: Array
    clock: Array

    @property
    def occupied(self) -> Array:
        """The places that hold a level, bool ``[C]``."""
        return jnp.arange(self.score.shape[0]) < self.size


def empty(levels: PyTree) -> Buffer:
    """Makes a buffer without levels, of the size, shapes and dtypes of ``levels`` ``[C, ...]``."""
    capacity = trees.length(levels)
    none = jnp.full(capacity, -jnp.inf)
    zero = jnp.zeros((), jnp.int32)
    return Buffer(levels, none, none, jnp.zeros(capacity, jnp.int32), marks(levels), zero, zero)


def marks(levels: PyTree) -> Array:
    """Computes two numbers for each of the levels ``[B, ...]``, uint32 ``[B, 2]``, which identify it.

    They are the same for equal bits, and also for different ones with a probability of about 2^-64.
    """
    words = jnp.concatenate([_words(x) for x in jax.tree.leaves(levels)], axis=1)
    factors = np.random.default_rng(0).integers(0, 2**32, (words.shape[1], 2), np.uint32) | 1
    mixed = words[:, :, None] * factors[None]
    mixed = (mixed ^ (mixed >> 15)) * np.uint32(0x2C1B3C6D)
    return jnp.sum(mixed ^ (mixed >> 12), axis=1, dtype=jnp.uint32)


def _words(leaf: Array) -> Array:
    """Converts a leaf ``[B, ...]`` to uint32 ``[B, n]``."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * leaf.dtype.itemsize}"))
    return leaf.astype(jnp.uint32).reshape(leaf.shape[0], -1)


def chances(buffer: Buffer, staleness: Scalar, temperature: Scalar) -> Array:
    """Computes the probability ``[C]`` with which each level is replayed; 0 where there is none.

    ``(1 - staleness) rank^(-1/temperature) / Z + staleness age / sum of ages``: the rank is that of the score, 1 for
    the highest, and the age is in batches since the level was last played (eq. 1 to 3).
    """
    occupied, size = buffer.occupied, buffer.size
    order = jnp.argsort(-jnp.where(occupied, buffer.score, -jnp.inf), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(1, order.size + 1, dtype=order.dtype))
    by_rank = jnp.where(occupied, rank.astype(jnp.float32) ** (-1 / temperature), 0.0)
    age = jnp.where(occupied, buffer.clock - buffer.stamp, 0).astype(jnp.float32)
    alike = jnp.where(occupied, 1.0, 0.0) / jnp.maximum(size, 1)
    share = lambda x: jnp.where(jnp.sum(x) > 0, x / jnp.maximum(jnp.sum(x), 1e-30), alike)
    return (1 - staleness) * share(by_rank) + staleness * share(age)


def choose(chance: Array, key: Key, number: int) -> Array:
    """Draws places, int32 ``[number]``, each with its ``chance`` ``[C]``. Consumes ``key``."""
    sums = jnp.cumsum(chance)
    place = jnp.searchsorted(sums, draw.uniform(key, (number,)) * sums[-1], side="right")
    return jnp.minimum(place, chance.size - 1).astype(jnp.int32)


def record(buffer: Buffer, levels: PyTree, place: Array, of: Played, score: Score, chance: Array) -> Buffer:
    """Records the results of play in ``B`` levels, of which several may be the same.

    A level that the buffer holds gets the mean score of its play. Of the new ones, the k-th best takes the place with
    the k-th least ``chance``, empty places first, if its score is higher than that of the level there. Play without a
    finished episode changes no score and adds no level.

    Args:
        buffer: The buffer before.
        levels: ``[B, ...]``.
        place: ``[B]`` int32, where a level came from; ``C`` if it is new.
        of: The results of play in each level, ``[B]``.
        score: How levels are scored.
        chance: ``[C]``, the probability with which each level of the buffer is chosen.
    """
    capacity = buffer.score.size
    mark = marks(levels)
    same = jnp.all(mark[:, None] == buffer.mark[None], axis=2) & buffer.occupied[None]
    place = jnp.where((place >= capacity) & jnp.any(same, axis=1), jnp.argmax(same, axis=1), place)
    known = place < capacity
    buffer = _rescored(buffer, jnp.where(known, place, capacity), of, score)
    scores = jnp.where(of.finished & ~known & jnp.isfinite(of.best), score(of, of.best), -jnp.inf)
    scores = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
    return _entered(buffer, levels, mark, scores, of.best, chance)


def _rescored(buffer: Buffer, place: Array, of: Played, score: Score) -> Buffer:
    """Updates the buffer after play in levels that it holds, at ``place`` ``[B]``; ``C`` for one that it lacks."""
    capacity = buffer.score.size
    finite = of.finished & jnp.isfinite(of.best)
    best = buffer.best.at[jnp.where(finite, place, capacity)].max(of.best, mode="drop")
    scores = score(of, best[jnp.minimum(place, capacity - 1)])
    counts = jnp.where(finite & jnp.isfinite(scores), place, capacity)
    number = jnp.zeros(capacity).at[counts].add(1.0, mode="drop")
    total = jnp.zeros(capacity).at[counts].add(jnp.where(counts < capacity, scores, 0.0), mode="drop")
    return buffer._replace(
        best=best,
        score=jnp.where(number > 0, total / jnp.maximum(number, 1.0), buffer.score),
        stamp=buffer.stamp.at[place].set(buffer.clock + 1, mode="drop"),
        clock=buffer.clock + 1,
    )


def _entered(buffer: Buffer, levels: PyTree, mark: Array, scores: Array, best: Array, chance: Array) -> Buffer:
    """Adds those new levels that beat what they replace; a level whose ``scores`` is -inf never does."""
    capacity, number = buffer.score.size, scores.size
    order = jnp.argsort(-scores, stable=True)
    levels, mark, scores, best = trees.take((levels, mark, scores, best), order)
    twice = jnp.any(jnp.tril(jnp.all(mark[:, None] == mark[None], axis=2), -1), axis=1)
    scores = jnp.where(twice, -jnp.inf, scores)
    turn = jnp.cumsum(~twice) - 1
    weakest = jnp.argsort(jnp.where(buffer.occupied, chance, -1.0), stable=True)[:number]
    place = weakest[turn]
    enters = (turn < capacity) & (scores > jnp.where(buffer.occupied[place], buffer.score[place], -jnp.inf))
    at = jnp.where(enters, place, capacity)
    put = lambda old, new: old.at[at].set(new, mode="drop")
    return buffer._replace(
        levels=jax.tree.map(put, buffer.levels, levels),
        score=put(buffer.score, scores),
        best=put(buffer.best, best),
        stamp=put(buffer.stamp, jnp.full(number, buffer.clock)),
        mark=put(buffer.mark, mark),
        size=buffer.size + jnp.sum(enters & ~buffer.occupied[place], dtype=jnp.int32),
    )
