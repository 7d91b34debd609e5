"""Objectives and losses of policy gradients, and diagnostics of them.

Objectives are maximised, losses are minimised; both are elementwise, and callers take the mean. `standardise` and
`explained_variance` reduce over all elements. ``config`` is the algorithm's Config, of which only the named fields are
read. TD errors are in `purerl.formulas.td_errors`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from purerl import shards
from purerl.types import Array

__all__ = [
    "approximate_kl",
    "clipped_surrogate",
    "clipped_value_loss",
    "discovered_policy",
    "explained_variance",
    "squared_value_loss",
    "standardise",
]


def clipped_surrogate(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """Computes PPO's clipped surrogate objective, to be maximised (Schulman et al. 2017, arXiv 1707.06347, eq. 7).

    ``min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A)`` with ``ratio = exp(log_ratio)``, ``A = advantage`` and
    ``eps = config.clip_epsilon``. ``log_ratio`` is log pi_new(action) - log pi_old(action).
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_epsilon, 1 + config.clip_epsilon)
    return jnp.minimum(ratio * advantage, clipped * advantage)


def discovered_policy(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """Computes the objective of discovered policy optimisation (DPO), to be maximised: ``ratio * A - drift``.

    Lu et al. 2022 (arXiv 2210.05639, section 5). The drift is ``relu((ratio - 1) * A - a * tanh((ratio - 1) * A / a))``
    where ``A >= 0``, and ``relu(log_ratio * A - b * tanh(log_ratio * A / b))`` elsewhere, with ``a = config.drift_a``
    and ``b = config.drift_b``. It is non-negative, and zero with zero slope at ratio 1.
    """
    ratio = jnp.exp(log_ratio)
    gain, loss = jnp.expm1(log_ratio) * advantage, log_ratio * advantage
    above = gain - config.drift_a * jnp.tanh(gain / config.drift_a)
    below = loss - config.drift_b * jnp.tanh(loss / config.drift_b)
    return ratio * advantage - jax.nn.relu(jnp.where(advantage >= 0, above, below))


def squared_value_loss(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """Computes ``0.5 * (value - target)^2``.

    ``old_value`` (the critic's value before the update) and ``config`` are unused.
    """
    return 0.5 * jnp.square(value - target)


def clipped_value_loss(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """Computes the clipped value loss ``0.5 * max((V - target)^2, (V_clip - target)^2)``.

    ``V_clip`` is ``V = value`` clipped to within ``config.clip_epsilon`` of ``old_value``, the critic's value before
    the update. This is the value clipping of OpenAI's PPO (Engstrom et al. 2020, arXiv 2005.12729, section 3, item 1),
    which is pessimistic: it takes the larger of the two losses. An infinite ``clip_epsilon`` gives half the squared
    error.
    """
    clipped = old_value + jnp.clip(value - old_value, -config.clip_epsilon, config.clip_epsilon)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))


def mean(x: Array, counts: Array | tuple[()] = ()) -> Array:
    """Computes the mean of the elements for which ``counts`` is True, a scalar; 0 if there are none.

    The mean over the `shards` of an agent of what each computes is the mean of all their elements.

    Args:
        x: An array.
        counts: Bool, of the shape of ``x``; ``()``: all elements count.
    """
    if isinstance(counts, tuple):
        return jnp.mean(x)
    return jnp.sum(jnp.where(counts, x, 0.0)) / at_least_one(jnp.sum(counts))


def both(one: Array | tuple[()], other: Array | tuple[()]) -> Array | tuple[()]:
    """Returns where two masks are True; ``()`` is True everywhere."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        return other if isinstance(one, tuple) else one
    return one & other


def at_least_one(size: Array) -> Array:
    """Returns ``size``, a number of elements, or 1 if there are none: the number by which sums over them are divided.

    In a split agent it is the mean over all `shards`.
    """
    if shards.count() == 1:
        return jnp.maximum(size, 1)
    return jnp.maximum(shards.mean(size.astype(jnp.float32)), 1 / shards.count())


def standardise(x: Array, counts: Array | tuple[()] = (), epsilon: float = 1e-8) -> Array:
    """Computes ``(x - mean) / (std + epsilon)`` over the elements that ``counts`` selects (see `mean`).

    The result is zero where the spread is mere float32 rounding, which is assumed if ``std`` is at most
    ``1e-6 * abs(mean)``.
    """
    middle, variance = moments(x, counts)
    std = jnp.sqrt(variance)
    return (x - middle) * jnp.where(std > 1e-6 * jnp.abs(middle), 1 / (std + epsilon), 0.0)


def moments(x: Array, counts: Array | tuple[()] = ()) -> tuple[Array, Array]:
    """Computes mean and variance, scalars, of the elements that ``counts`` selects (see `mean`).

    In a split agent these are of the elements in all `shards`.
    """
    where = None if isinstance(counts, tuple) else counts
    size = x.size if where is None else jnp.sum(where)

    def average(x: Array) -> Array:
        return jnp.mean(x) if where is None else jnp.sum(jnp.where(where, x, 0.0)) / jnp.maximum(size, 1)

    middle = average(x)
    return shards.joined(middle, average(jnp.square(x - middle)), size)


def approximate_kl(log_ratio: Array) -> Array:
    """Estimates KL(old || new) from samples of the old policy: ``ratio - 1 - log_ratio``, never negative.

    Elementwise; the mean over samples estimates the divergence. Schulman 2020, "Approximating KL divergence", estimator
    k3.
    """
    return jnp.expm1(log_ratio) - log_ratio


def explained_variance(prediction: Array, target: Array, counts: Array | tuple[()] = ()) -> Array:
    """Computes ``1 - Var(target - prediction) / Var(target)``, a scalar, over the elements that ``counts`` selects.

    ``counts`` is as for `mean`. The result is nan if the target is constant.
    """
    where = None if isinstance(counts, tuple) else counts
    both = target, target - prediction
    size = target.size if where is None else jnp.sum(where)
    means, variances = (jnp.stack([f(x, where=where) for x in both]) for f in (jnp.mean, jnp.var))
    variance, unexplained = shards.joined(means, variances, size)[1]
    return jnp.where(variance > 0, 1 - unexplained / variance, jnp.nan)
