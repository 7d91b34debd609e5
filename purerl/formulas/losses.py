"""Objectives and losses. Up to `huber` they are elementwise, and callers take the mean.

Temporal-difference errors and losses, from `q_learning` to `quantile_q_learning`, are for one transition, and callers
vmap them. They share their arguments:

- the first, ``[A]`` or ``[A, K]``, is what the online network gives for its observation. Gradients flow into it alone.
- ``target_q`` ``[A]`` are the target network's values of the same observation; what begins with ``next_`` is the target
  network's for the next one.
- ``action`` (int), ``reward`` and ``discount`` are scalars. Over ``h`` steps ``reward`` is their discounted sum, and
  ``discount`` is ``gamma^h * (1 - terminated)``.
- ``chooser`` ``[A]``: the values by which the next action is chosen, the largest one's. The online network's values of
  the next observation make it double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461).

An error is what the action's value lacks.
"""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.types import Array


def clipped_surrogate(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """PPO's objective, to be maximised (Schulman et al. 2017, arXiv 1707.06347, eq. 7).

    ``min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A)`` with ``eps = config.clip_epsilon``.
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_epsilon, 1 + config.clip_epsilon)
    return jnp.minimum(ratio * advantage, clipped * advantage)


def discovered_policy(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """Discovered policy optimisation's objective, to be maximised: ``ratio * A - drift`` (Lu et al. 2022, arXiv
    2210.05639, section 5).

    The drift is ``relu((ratio - 1) * A - a * tanh((ratio - 1) * A / a))`` where ``A >= 0``, and
    ``relu(log_ratio * A - b * tanh(log_ratio * A / b))`` elsewhere, with ``a = config.drift_a`` and
    ``b = config.drift_b``. It is zero, with zero slope, at ratio 1, and never negative.
    """
    ratio = jnp.exp(log_ratio)
    gain, loss = jnp.expm1(log_ratio) * advantage, log_ratio * advantage
    above = gain - config.drift_a * jnp.tanh(gain / config.drift_a)
    below = loss - config.drift_b * jnp.tanh(loss / config.drift_b)
    return ratio * advantage - jax.nn.relu(jnp.where(advantage >= 0, above, below))


def squared_value_loss(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """``0.5 * (V - target)^2``. ``old_value``, what the critic gave before, and ``config`` are not used."""
    return 0.5 * jnp.square(value - target)


def clipped_value_loss(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """``0.5 * max((V - target)^2, (V_clip - target)^2)``, ``V_clip`` being V moved at most ``config.clip_epsilon`` from
    ``old_value``, what the critic gave before.

    The value clipping of OpenAI's PPO (Engstrom et al. 2020, arXiv 2005.12729, section 3, item 1), pessimistic:
    it takes the larger of the two. An infinite ``clip_epsilon`` gives half the squared error.
    """
    clipped = old_value + jnp.clip(value - old_value, -config.clip_epsilon, config.clip_epsilon)
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
