"""Running mean and variance, kept in the learner's state, and what is normalised by them.

A `Normalizer` is an argument, not a flag: `identity()` has no state and costs nothing.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import exact, shards, trees
from purerl.types import Array, PyTree, Scalar

MAX_COUNT = 2**30
"""Number of samples beyond which old ones are forgotten exponentially."""
PLAIN_COUNT = 2**24
"""Number of samples up to which plain float32 additions suffice. Beyond it, a batch of 4 moves the mean by less than
half a unit of its last place."""

LARGEST = 1e15
"""The largest sample that counts as such; larger ones count as this. Sums of their squares stay below 3e38."""


class Moments(NamedTuple):
    """Running ``mean`` and ``var`` of ``count`` (int32) samples."""

    count: Array  # type: ignore[assignment]  # hides tuple's; saved policies hold it by this name
    mean: Array
    var: Array


class Compensated(NamedTuple):
    """The `Moments`, and what rounding cut off their ``mean`` and ``var``."""

    moments: Moments
    mean_rest: Array
    var_rest: Array


class Normalizer(NamedTuple):
    """The functions ``init(example)``, ``update(state, batch, counts)`` and ``apply(state, x)``.

    ``counts``, bool of the leading axes of a batch, selects the samples that count; ``()``: all.
    """

    init: Callable[[PyTree], PyTree]
    update: Callable[..., PyTree]
    apply: Callable[[PyTree, PyTree], PyTree]


def init_moments(shape: tuple[int, ...]) -> Moments:
    """Makes the moments of no samples: mean 0, variance 1."""
    return Moments(jnp.zeros((), jnp.int32), jnp.zeros(shape), jnp.ones(shape))


def update_moments(
    moments: Moments, batch: Array, max_count: int = MAX_COUNT, counts: Array | tuple[()] = ()
) -> Moments:
    """Merges a batch into moments (Chan, Golub & LeVeque 1983, eq. 2.1).

    It merges by weights rather than by sums, so that nothing grows with the count. The count is exact up to
    ``max_count`` and stays there, or at the size of a larger batch.

    Args:
        moments: Moments of samples ``[*shape]``.
        batch: New samples ``[..., *shape]``.
        max_count: The largest count; beyond it old samples are forgotten exponentially.
        counts: The samples that count, bool ``[...]``; ``()``: all.
    """
    return _merged(moments, *_of_batch(moments, batch, counts), max_count)


def _of_batch(moments: Moments, batch: Array, counts: Array | tuple[()]) -> tuple[int | Array, Array, Array]:
    """Returns the number of samples of a batch, in all `shards` of an agent, and their mean and variance."""
    axes = tuple(range(batch.ndim - moments.mean.ndim))
    batch = _within(batch)
    if isinstance(counts, tuple):
        size = shards.count() * batch.size // moments.mean.size
        return size, *shards.joined(jnp.mean(batch, axis=axes), jnp.var(batch, axis=axes))
    number = jnp.sum(counts, dtype=jnp.int32)
    where = counts.reshape(*counts.shape, *[1] * moments.mean.ndim)
    mean = lambda x: jnp.sum(jnp.where(where, x, 0.0), axis=axes) / jnp.maximum(number, 1)
    middle = mean(batch)
    variance = mean(jnp.square(batch - trees.like(middle, batch)))
    return shards.total(number), *shards.joined(middle, variance, number)


def _within(x: Array) -> Array:
    """Returns floats within what `Moments` can hold; integers always are."""
    return jnp.clip(x, -LARGEST, LARGEST) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _merged(
    moments: Moments, size: int | Array, batch_mean: Array, batch_var: Array, max_count: int = MAX_COUNT
) -> Moments:
    """Merges what `_of_batch` returns into moments; see `update_moments`."""
    count = jnp.minimum(moments.count, jnp.maximum(max_count - size, 0)) + size
    weight = size / jnp.maximum(count, 1).astype(jnp.float32)
    shift = batch_mean - moments.mean
    return Moments(
        count=count,
        mean=moments.mean + weight * shift,
        var=(1 - weight) * moments.var + weight * batch_var + weight * (1 - weight) * jnp.square(shift),
    )


def compensate(state: Compensated, batch: Array, counts: Array | tuple[()] = ()) -> Compensated:
    """Merges a batch as `update_moments` does, but loses none to rounding.

    Beyond `PLAIN_COUNT` samples it makes compensated additions.
    """
    moments, (size, batch_mean, batch_var) = state.moments, _of_batch(state.moments, batch, counts)
    plain = _merged(moments, size, batch_mean, batch_var)
    count = jnp.maximum(plain.count, 1).astype(jnp.float32)
    shift = batch_mean - moments.mean - state.mean_rest
    growth = batch_var - moments.var - state.var_rest + (1 - size / count) * jnp.square(shift)
    mean, mean_rest = exact.add(moments.mean, state.mean_rest + shift * size / count)
    var, var_rest = exact.add(moments.var, state.var_rest + growth * size / count)
    large = Compensated(Moments(plain.count, mean, var), mean_rest, var_rest)
    choose = functools.partial(jnp.where, plain.count > PLAIN_COUNT)
    return jax.tree.map(choose, large, Compensated(plain, state.mean_rest, state.var_rest))


def settled(state: PyTree) -> PyTree:
    """Returns a normaliser's state as policies hold it: `Moments` alone, which its ``apply`` reads as well."""
    is_leaf = lambda x: isinstance(x, Compensated)
    return jax.tree.map(lambda x: x.moments, state, is_leaf=is_leaf)


def identity() -> Normalizer:
    """Makes a normaliser that leaves everything as it is."""
    return Normalizer(init=lambda example: (), update=lambda state, batch, counts=(): state, apply=lambda state, x: x)


def running(epsilon: float = 1e-8, bound: float = 10.0) -> Normalizer:
    """Makes a normaliser of observations ``[..., *shape]`` by their running mean and variance.

    It computes ``clip((x - mean) / sqrt(var + epsilon), -bound, bound)``, of numbers beyond `LARGEST` as of that. A
    single array is normalised whatever its
    dtype. In a tree of observations every leaf of floats has moments of its own; leaves of booleans and integers stay
    as they are, because they are masks of legal actions and numbers that become one-hot.
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
        return jnp.clip((_within(x) - mean) * jax.lax.rsqrt(var + epsilon), -bound, bound)

    return Normalizer(
        init=init,
        update=lambda state, batch, counts=(): jax.tree.map(
            lambda x, m: compensate(m, x, counts) if m else m, batch, state
        ),
        apply=lambda state, x: jax.tree.map(normalise, x, state),
    )


def held(normalizer: Normalizer) -> Normalizer:
    """Makes a normaliser whose state stays as it is, such as that of observations which are all known beforehand."""
    return normalizer._replace(update=lambda state, batch, counts=(): state)


class ReturnScale(NamedTuple):
    """The moments of the discounted return, and the return so far of each of ``B`` environments."""

    moments: Moments
    discounted: Array


class RewardScaler(NamedTuple):
    """A scaler of rewards, as pure functions.

    ``init(num_envs)`` makes its state, and ``scale(state, reward [T, B], last [T, B], gamma, counts)`` returns
    ``(state, reward)``. ``counts``, bool ``[T, B]``, selects the steps whose returns count; ``()``: all.
    """

    init: Callable[[int], PyTree]
    scale: Callable[..., tuple[PyTree, Array]]


def identity_reward() -> RewardScaler:
    """Makes a scaler that leaves rewards as they are."""
    return RewardScaler(init=lambda num_envs: (), scale=lambda state, reward, last, gamma, counts=(): (state, reward))


def team_spirit(team_size: int, spirit: Scalar) -> RewardScaler:
    """Makes a scaler that mixes the rewards of each team (Berner et al. 2019, arXiv 1912.06680, appendix G).

    A reward becomes ``(1 - spirit) * reward + spirit * mean of the team``. With 0 each environment keeps its own
    reward, with 1 all of a team have the same.

    Args:
        team_size: Number of consecutive environments that make a team.
        spirit: Weight of the team's mean; it may be traced.

    Raises:
        ValueError: From ``init``, if ``team_size`` does not divide the number of environments.
    """

    def init(num_envs: int) -> tuple[()]:
        if num_envs % team_size:
            raise ValueError(f"team_size = {team_size}: must divide num_envs = {num_envs}")
        return ()

    def scale(
        state: PyTree, reward: Array, last: Array, gamma: Scalar, counts: Array | tuple[()] = ()
    ) -> tuple[PyTree, Array]:
        teams = reward.reshape(*reward.shape[:-1], -1, team_size)
        mixed = (1 - spirit) * teams + spirit * jnp.mean(teams, axis=-1, keepdims=True)
        return state, mixed.reshape(reward.shape)

    return RewardScaler(init=init, scale=scale)


def running_reward(epsilon: float = 1e-8, bound: float = 10.0) -> RewardScaler:
    """Makes a scaler that divides rewards by the running standard deviation of the discounted return.

    Engstrom et al. 2020 (arXiv 2005.12729), algorithm 1: rewards are not shifted, and the return is accumulated
    forwards and starts anew with each episode. Beyond `PLAIN_COUNT` returns, old ones are forgotten exponentially.
    Scaled rewards are clipped to [-``bound``, ``bound``].
    """

    def scale(state, reward, last, gamma, counts=()):
        def accumulate(discounted, step):
            reward, last = step
            discounted = gamma * discounted + reward
            return jnp.where(last, 0.0, discounted), discounted

        open_return, discounted = jax.lax.scan(accumulate, state.discounted, (reward, last))
        moments = update_moments(state.moments, discounted, PLAIN_COUNT, counts)
        scaled = jnp.clip(reward * jax.lax.rsqrt(moments.var + epsilon), -bound, bound)
        return ReturnScale(moments, open_return), scaled

    def init(num_envs):
        return ReturnScale(init_moments(()), jnp.zeros(num_envs))

    return RewardScaler(init=init, scale=scale)
