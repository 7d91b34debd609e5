"""Linear schedules of hyper-parameters during training."""

from collections.abc import Callable

import jax.numpy as jnp

from purerl import counters
from purerl.counters import Count
from purerl.types import Array, Scalar

__all__ = ["anneal", "linear_decay", "progress"]


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
