"""Linear schedules of hyper-parameters during training."""

import jax.numpy as jnp
import optax

from purerl.types import Array, Scalar


def linear_decay(learning_rate: Scalar, decay: Scalar, num_updates: int) -> optax.Schedule:
    """A schedule from ``learning_rate`` to ``learning_rate * (1 - decay)`` over ``num_updates`` updates, then constant.

    With ``decay = 1`` it ends at zero and stays there. ``learning_rate`` and ``decay`` may be traced.
    """
    return optax.linear_schedule(learning_rate, learning_rate * (1 - decay), num_updates)


def anneal(start: Scalar, end: Scalar, progress: Scalar) -> Array:
    """Linear interpolation from ``start`` at ``progress`` 0 to ``end`` at 1, constant outside. Elementwise float32."""
    return start + (end - start) * jnp.clip(jnp.asarray(progress, jnp.float32), 0.0, 1.0)
