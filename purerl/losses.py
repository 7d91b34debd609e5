"""Objectives and losses, elementwise: arrays of one shape in, the same shape out. Callers take the mean.

The temporal-difference errors at the end are for one transition, and callers vmap them. They share their arguments:
``q`` ``[A]`` are the action values of its observation, ``next_q_online`` and ``next_q_target`` ``[A]`` those of its
next one by the online and by the target network; ``action`` (int), ``reward`` and ``discount``, which is
``gamma * (1 - terminated)``, are scalars. The error is what ``q[action]`` lacks; its gradient flows into ``q`` alone.
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


def huber(error: Array, delta: Array) -> Array:
    """``0.5 * error^2`` up to ``|error| = delta``, and on from there in a straight line (Huber 1964, eq. 2).

    With ``delta = 1`` its slope is the error clipped to [-1, 1], as in Mnih et al. 2015 (Methods).
    """
    bounded = jnp.clip(error, -delta, delta)
    return bounded * (error - 0.5 * bounded)


def q_learning(
    q: Array, action: Array, reward: Array, discount: Array, next_q_online: Array, next_q_target: Array
) -> Array:
    """``reward + discount * max Q_target(next) - Q(action)``, a scalar (Mnih et al. 2015, Nature 518, Algorithm 1)."""
    target = reward + discount * jnp.max(next_q_target)
    return jax.lax.stop_gradient(target) - _at(q, action)


def double_q_learning(
    q: Array, action: Array, reward: Array, discount: Array, next_q_online: Array, next_q_target: Array
) -> Array:
    """As `q_learning`, with the next action chosen by the online network (van Hasselt et al. 2016, arXiv 1509.06461).

    ``reward + discount * Q_target(next, argmax Q_online(next)) - Q(action)``, a scalar (the unnumbered equation of
    section "Double DQN").
    """
    target = reward + discount * _at(next_q_target, jnp.argmax(next_q_online))
    return jax.lax.stop_gradient(target) - _at(q, action)


def _at(q: Array, action: Array) -> Array:
    """``q[action]`` as a sum, whose gradient is no scatter."""
    return jnp.sum(jnp.where(jnp.arange(q.shape[0]) == action, q, 0.0))
