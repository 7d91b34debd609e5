"""Counters of 64 bits on a device that counts in 32: a count of updates passes 2^31 in a long training."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

MOST_DIVISOR = 2**16
"""The largest number that `divide` divides by."""


class Count(NamedTuple):
    """The whole number ``high * 2^32 + low``, from 0 to 2^64 - 1. Both words are uint32, of one shape."""

    low: jax.Array
    high: jax.Array


def of(number: int = 0) -> Count:
    """Makes a `Count` of shape ``[]`` of ``number``."""
    return Count(jnp.uint32(number % 2**32), jnp.uint32(number // 2**32))


def increment(count: Count) -> Count:
    """Adds one to a count."""
    low = count.low + 1
    return Count(low, count.high + (low == 0))


def real(count: Count) -> jax.Array:
    """Returns the number in float32: exact up to 2^24, rounded to a part in 2^23 beyond.

    It never falls as the count rises.
    """
    return count.high.astype(jnp.float32) * 2.0**32 + count.low.astype(jnp.float32)


def reached(count: Count, number: int) -> jax.Array:
    """Returns whether the count is at least ``number``, exactly. Bool, elementwise."""
    high, low = jnp.uint32(number // 2**32), jnp.uint32(number % 2**32)
    return (count.high > high) | ((count.high == high) & (count.low >= low))


def number(count: Count) -> int:
    """Returns a count of shape ``[]`` as a Python int, on the host."""
    return int(np.asarray(count.high)) * 2**32 + int(np.asarray(count.low))


def divide(count: Count, number: int) -> tuple[Count, jax.Array]:
    """Divides a count by ``number``, 1 to `MOST_DIVISOR`, and returns quotient and remainder.

    The quotient is a count, rounded down; the remainder is uint32.
    """
    digits = [count.high >> 16, count.high & 0xFFFF, count.low >> 16, count.low & 0xFFFF]
    left, quotients = jnp.zeros_like(count.low), []
    for digit in digits:
        left = left << 16 | digit
        quotients.append(left // number)
        left = left % number
    return Count(quotients[2] << 16 | quotients[3], quotients[0] << 16 | quotients[1]), left
