"""Running mean and variance, kept in the learner's state, and what is normalised with them.

A `Normalizer` is an argument, not a flag: `identity()` has no state and costs nothing.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import shards
from purerl.types import Array, PyTree, Scalar

MAX_COUNT = 2**30
"""Beyond so many samples, old ones are forgotten exponentially."""
PLAIN_COUNT = 2**24
"""Up to so many samples plain float32 additions do; beyond, a batch of 4 moves the mean by less than half a unit of its
last place."""


class Moments(NamedTuple):
    """Running ``mean`` and ``var`` of ``count`` (int32) samples."""

    count: Array  # type: ignore[assignment]  # hides tuple's; saved policies hold it by this name
    mean: Array
    var: Array


class Compensated(NamedTuple):
    """`Moments`, and what rounding cut off their ``mean`` and ``var``."""

    moments: Moments
    mean_rest: Array
    var_rest: Array


class Normalizer(NamedTuple):
    """``init(example)``, ``update(state, batch)`` and ``apply(state, x)``."""

    init: Callable[[PyTree], PyTree]
    update: Callable[[PyTree, PyTree], PyTree]
    apply: Callable[[PyTree, PyTree], PyTree]


def init_moments(shape: tuple[int, ...]) -> Moments:
    """No samples yet: mean 0, variance 1."""
    return Moments(jnp.zeros((), jnp.int32), jnp.zeros(shape), jnp.ones(shape))


def update_moments(moments: Moments, batch: Array, max_count: int = MAX_COUNT) -> Moments:
    """Merges a batch ``[..., *shape]`` (Chan, Golub & LeVeque 1983, eq. 2.1), by weights rather than by sums, so that
    nothing grows with the count. The count is exact up to ``max_count`` and stays there, or at the size of a larger
    batch.
    """
    return _merged(moments, *_of_batch(moments, batch), max_count)


def _of_batch(moments: Moments, batch: Array) -> tuple[int, Array, Array]:
    """How many samples a batch has, in all `shards` of an agent, and their mean and variance."""
    axes = tuple(range(batch.ndim - moments.mean.ndim))
    size = shards.count() * batch.size // moments.mean.size
    return size, *shards.joined(jnp.mean(batch, axis=axes), jnp.var(batch, axis=axes))


def _merged(moments: Moments, size: int, batch_mean: Array, batch_var: Array, max_count: int = MAX_COUNT) -> Moments:
    """`update_moments` by what `_of_batch` finds."""
    count = jnp.minimum(moments.count, max(max_count - size, 0)) + size
    weight = size / count.astype(jnp.float32)
    shift = batch_mean - moments.mean
    return Moments(
        count=count,
        mean=moments.mean + weight * shift,
        var=(1 - weight) * moments.var + weight * batch_var + weight * (1 - weight) * jnp.square(shift),
    )


def compensate(state: Compensated, batch: Array) -> Compensated:
    """`update_moments`, with compensated additions beyond `PLAIN_COUNT` samples, so that no batch is lost."""
    moments, (size, batch_mean, batch_var) = state.moments, _of_batch(state.moments, batch)
    plain = _merged(moments, size, batch_mean, batch_var)
    count = plain.count.astype(jnp.float32)
    shift = batch_mean - moments.mean - state.mean_rest
    growth = batch_var - moments.var - state.var_rest + (1 - size / count) * jnp.square(shift)
    mean, mean_rest = _add(moments.mean, state.mean_rest + shift * size / count)
    var, var_rest = _add(moments.var, state.var_rest + growth * size / count)
    exact = Compensated(Moments(plain.count, mean, var), mean_rest, var_rest)
    choose = functools.partial(jnp.where, plain.count > PLAIN_COUNT)
    return jax.tree.map(choose, exact, Compensated(plain, state.mean_rest, state.var_rest))


def _add(a: Array, b: Array) -> tuple[Array, Array]:
    """``a + b`` rounded, and what was cut off (Knuth 1997, section 4.2.2, theorem B)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def settled(state: PyTree) -> PyTree:
    """A normaliser's state as policies hold it, which its ``apply`` reads as well: `Moments` alone."""
    is_leaf = lambda x: isinstance(x, Compensated)
    return jax.tree.map(lambda x: x.moments, state, is_leaf=is_leaf)


def identity() -> Normalizer:
    """Leaves everything as it is."""
    return Normalizer(init=lambda example: (), update=lambda state, batch: state, apply=lambda state, x: x)


def running(epsilon: float = 1e-8, bound: float = 10.0) -> Normalizer:
    """``clip((x - mean) / sqrt(var + epsilon), -bound, bound)`` for observations ``[..., *shape]``.

    One array is normalised whatever its dtype. In a tree of observations every leaf of floats has moments of its own;
    leaves of booleans and integers stay as they are: masks of legal actions, and numbers that become one-hot.
    """

    def begin(x: Array) -> Compensated:
        return Compensated(init_moments(x.shape), jnp.zeros(x.shape), jnp.zeros(x.shape))

    def init(example: PyTree) -> PyTree:
        if isinstance(example, jax.Array):
            return begin(example)
        return jax.tree.map(lambda x: begin(x) if jnp.issubdtype(x.dtype, jnp.inexact) else (), example)

    def normalise(x: Array, state: Compensated | Moments | tuple[()]) -> Array:
        if not state:
            return x
        moments = state.moments if isinstance(state, Compensated) else state
        lead = (1,) * (x.ndim - moments.mean.ndim)
        mean, var = (m.reshape(lead + m.shape) for m in (moments.mean, moments.var))
        return jnp.clip((x - mean) * jax.lax.rsqrt(var + epsilon), -bound, bound)

    return Normalizer(
        init=init,
        update=lambda state, batch: jax.tree.map(lambda x, m: compensate(m, x) if m else m, batch, state),
        apply=lambda state, x: jax.tree.map(normalise, x, state),
    )


class ReturnScale(NamedTuple):
    """Moments of the discounted return, and the return so far of each of ``B`` environments."""

    moments: Moments
    discounted: Array


class RewardScaler(NamedTuple):
    """``init(num_envs)`` and ``scale(state, reward [T, B], last [T, B], gamma) -> (state, reward)``."""

    init: Callable[[int], PyTree]
    scale: Callable[[PyTree, Array, Array, Scalar], tuple[PyTree, Array]]


def identity_reward() -> RewardScaler:
    """Leaves rewards as they are."""
    return RewardScaler(init=lambda num_envs: (), scale=lambda state, reward, last, gamma: (state, reward))


def team_spirit(team_size: int, spirit: Scalar) -> RewardScaler:
    """Mixes the rewards of a team, ``team_size`` environments in a row: ``(1 - spirit) * reward + spirit * mean of the
    team``. With 0 each has its own, with 1 all have the same (Berner et al. 2019, arXiv 1912.06680, appendix G).

    ``spirit`` may be traced. Raises `ValueError` if ``team_size`` does not divide the environments.
    """

    def init(num_envs: int) -> tuple[()]:
        if num_envs % team_size:
            raise ValueError(f"team_size = {team_size}: must divide num_envs = {num_envs}")
        return ()

    def scale(state: PyTree, reward: Array, last: Array, gamma: Scalar) -> tuple[PyTree, Array]:
        teams = reward.reshape(*reward.shape[:-1], -1, team_size)
        mixed = (1 - spirit) * teams + spirit * jnp.mean(teams, axis=-1, keepdims=True)
        return state, mixed.reshape(reward.shape)

    return RewardScaler(init=init, scale=scale)


def running_reward(epsilon: float = 1e-8, bound: float = 10.0) -> RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return, without shifting them.

    Engstrom et al. 2020 (arXiv 2005.12729), algorithm 1: the return is accumulated forwards and starts anew with each
    episode. Beyond `PLAIN_COUNT` returns, old ones are forgotten exponentially.
    """

    def scale(state, reward, last, gamma):
        def accumulate(discounted, step):
            reward, last = step
            discounted = gamma * discounted + reward
            return jnp.where(last, 0.0, discounted), discounted

        open_return, discounted = jax.lax.scan(accumulate, state.discounted, (reward, last))
        moments = update_moments(state.moments, discounted, PLAIN_COUNT)
        scaled = jnp.clip(reward * jax.lax.rsqrt(moments.var + epsilon), -bound, bound)
        return ReturnScale(moments, open_return), scaled

    def init(num_envs):
        return ReturnScale(init_moments(()), jnp.zeros(num_envs))

    return RewardScaler(init=init, scale=scale)
