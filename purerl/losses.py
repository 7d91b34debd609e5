"""Objectives and losses, elementwise: arrays of one shape in, the same shape out. Callers take the mean."""

from typing import Any

import jax.numpy as jnp

from purerl.types import Array


def clipped_surrogate(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """PPO's objective, to be maximised (Schulman et al. 2017, arXiv 1707.06347, eq. 7).

    ``min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A)`` with ``eps = config.clip_epsilon``.
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_epsilon, 1 + config.clip_epsilon)
    return jnp.minimum(ratio * advantage, clipped * advantage)


def clipped_value_loss(value: Array, old_value: Array, target: Array, clip_epsilon: Array) -> Array:
    """``0.5 * max((V - target)^2, (V_clip - target)^2)``, ``V_clip`` being V moved at most ``clip_epsilon`` from V_old.

    The value clipping of OpenAI's PPO (Engstrom et al. 2020, arXiv 2005.12729, section 3, item 1), pessimistic:
    it takes the larger of the two. An infinite ``clip_epsilon`` gives half the squared error.
    """
    clipped = old_value + jnp.clip(value - old_value, -clip_epsilon, clip_epsilon)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))


def standardise(x: Array, epsilon: float = 1e-8) -> Array:
    """``(x - mean) / (std + epsilon)`` over all elements; zeros if they differ by no more than float32 rounds."""
    mean = jnp.mean(x)
    centred = x - mean
    std = jnp.sqrt(jnp.mean(jnp.square(centred)))
    return centred * jnp.where(std > 1e-6 * jnp.abs(mean), 1 / (std + epsilon), 0.0)


def approximate_kl(log_ratio: Array) -> Array:
    """An estimate of KL(old || new) from samples of the old policy: ``ratio - 1 - log ratio``, never negative.

    Schulman 2020, "Approximating KL divergence", estimator k3.
    """
    return jnp.expm1(log_ratio) - log_ratio


def explained_variance(prediction: Array, target: Array) -> Array:
    """``1 - Var(target - prediction) / Var(target)`` over all elements, a scalar; nan if the target is constant."""
    variance = jnp.var(target)
    return jnp.where(variance > 0, 1 - jnp.var(target - prediction) / variance, jnp.nan)
