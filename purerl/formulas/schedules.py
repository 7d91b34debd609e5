"""Numbers that change in a straight line during a training."""

import jax.numpy as jnp
import optax

from purerl.types import Array


def linear_decay(learning_rate: Array, decay: Array, num_updates: int) -> optax.Schedule:
    """From ``learning_rate`` down by the fraction ``decay`` of it over ``num_updates`` updates, and constant after.

    With ``decay = 1`` it ends at zero and stays there. Both numbers may be traced.
    """
    return optax.linear_schedule(learning_rate, learning_rate * (1 - decay), num_updates)


def anneal(start: Array, end: Array, progress: Array) -> Array:
    """The line from ``start``, at ``progress`` 0, to ``end``, at 1; constant before and after. Elementwise float32."""
    return start + (end - start) * jnp.clip(jnp.asarray(progress, jnp.float32), 0.0, 1.0)
