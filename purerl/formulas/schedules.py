"""Schedules of hyper-parameters during training: linear ones, and a step size that follows a divergence."""

from collections.abc import Callable

import jax.numpy as jnp

from purerl import counters
from purerl.counters import Count
from purerl.types import Array, Scalar

__all__ = ["anneal", "by_divergence", "linear_decay", "progress"]


def progress(count: Count, total: Scalar) -> Array:
    """Computes ``count / total`` in float32, the fraction of a training that is over.

    It rises beyond 1 after the end. ``total`` is positive, however large, and may be traced; the same number, traced or
    not, gives the same bits: XLA turns the division by a constant into this product.
    """
    return counters.real(count) * (1 / jnp.asarray(total, jnp.float32))


def linear_decay(learning_rate: Scalar, decay: Scalar, num_updates: Scalar) -> Callable[[Count], Array]:
    """Makes a schedule from ``learning_rate`` to ``learning_rate * (1 - decay)``, linear over ``num_updates`` updates.

    After these it is constant. With ``decay = 1`` it ends at zero. All three may be traced, which
    `optax.linear_schedule` does not allow.
    """
    end = learning_rate * (1 - decay)

    def schedule(count: Count) -> Array:
        left = jnp.maximum(1 - progress(count, num_updates), 0.0)
        return (learning_rate - end) * left + end

    return schedule


def anneal(start: Scalar, end: Scalar, progress: Scalar) -> Array:
    """Interpolates linearly from ``start`` at ``progress`` 0 to ``end`` at 1, constant outside. Elementwise float32."""
    return start + (end - start) * jnp.clip(jnp.asarray(progress, jnp.float32), 0.0, 1.0)


SMALLEST_STEP, LARGEST_STEP = 1e-5, 1e-2
"""Step sizes at which `by_divergence` stops to divide and to multiply."""
NO_DIVERGENCE = 1e-10
"""A divergence up to which a policy counts as the same. Rounding gives log-probabilities errors around 1e-6, of which a
divergence has half the square."""


def by_divergence(step_size: Array, divergence: Array, target: float) -> Array:
    """Computes the next step size ``[]`` from the present one and the KL divergence of a policy that it moves.

    Above twice the ``target`` it is divided by 1.5, though not below 1e-5; below half the target it is multiplied by
    1.5, though not above 1e-2. A divergence of 0, up to rounding (`NO_DIVERGENCE`), is that of a policy before its
    first step and changes nothing, nor does one that is no number. It is the rule of rsl_rl for robots that walk (Rudin
    et al. 2021, arXiv 2109.11978; github.com/leggedrobotics/rsl_rl at 010cd22, rsl_rl/algorithms/ppo.py), after the
    penalty of Schulman et al. 2017 (arXiv 1707.06347, section 4).
    """
    slower = jnp.maximum(step_size / 1.5, SMALLEST_STEP)
    faster = jnp.minimum(step_size * 1.5, LARGEST_STEP)
    below = (divergence < target / 2) & (divergence > NO_DIVERGENCE)
    return jnp.where(divergence > 2 * target, slower, jnp.where(below, faster, step_size))
