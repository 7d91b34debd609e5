"""Draws of large arrays of random numbers.

Every function consumes ``key`` and returns an array of ``shape`` with the same numbers as its namesake in `jax.random`.
The numbers are drawn as one vector and reshaped, which XLA on CPU compiles several times faster than a draw of many
axes, and runs faster.
"""

from collections.abc import Callable

import jax
import numpy as np

from purerl.types import Array, Key


def bits(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws uniform random 32-bit words, uint32."""
    return _flat(jax.random.bits, key, shape)


def uniform(key: Key, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Array:
    """Draws uniform numbers in ``[low, high)``, float32."""
    return _flat(lambda key, shape: jax.random.uniform(key, shape, minval=low, maxval=high), key, shape)


def normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws standard normal numbers, float32."""
    return _flat(jax.random.normal, key, shape)


def gumbel(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws standard Gumbel numbers, float32."""
    return _flat(jax.random.gumbel, key, shape)


def _flat(sample: Callable[..., Array], key: Key, shape: tuple[int, ...]) -> Array:
    """Draws ``sample(key, shape)`` as a vector and reshapes it."""
    return sample(key, (int(np.prod(shape)),)).reshape(shape)
