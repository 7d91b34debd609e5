"""Bandits whose arms change with time: upper confidence bounds over a window of the last pulls.

``N`` arms, ``W`` pulls in the window.
"""

from typing import NamedTuple

import jax.numpy as jnp

from purerl.types import Array, Scalar


class Pulls(NamedTuple):
    """The last pulls: their arms (int32) and rewards, both ``[W]``, and the number of all pulls so far (int32). Pull
    number ``n`` lies at place ``n % W``."""

    arm: Array
    reward: Array
    number: Array


def init(window: int) -> Pulls:
    """No pull yet, and room for ``W = window``."""
    return Pulls(jnp.zeros(window, jnp.int32), jnp.zeros(window), jnp.zeros((), jnp.int32))


def record(pulls: Pulls, arm: Array, reward: Array) -> Pulls:
    """The pulls after one more, which takes the place of the oldest."""
    place = pulls.number % len(pulls.arm)
    return Pulls(pulls.arm.at[place].set(arm), pulls.reward.at[place].set(reward), pulls.number + 1)


def statistics(pulls: Pulls, num_arms: int) -> tuple[Array, Array]:
    """How often each arm was pulled within the window, and the sum of its rewards there. Both ``[N]``."""
    held = jnp.arange(len(pulls.arm)) < pulls.number
    own = (pulls.arm[:, None] == jnp.arange(num_arms)[None]) & held[:, None]
    return jnp.sum(own, axis=0).astype(jnp.float32), jnp.sum(jnp.where(own, pulls.reward[:, None], 0.0), axis=0)


def bounds(pulls: Pulls, num_arms: int, width: Scalar) -> Array:
    """Upper confidence bounds ``[N]``: ``mean + width * sqrt(1 / count)`` over the window, and infinity for an arm that
    the window does not hold (Badia et al. 2020, arXiv 2003.13350, eq. 4, in their simplified form)."""
    count, total = statistics(pulls, num_arms)
    safe = jnp.maximum(count, 1.0)
    return jnp.where(count > 0, total / safe + width * jnp.sqrt(1 / safe), jnp.inf)


def choose(pulls: Pulls, num_arms: int, width: Scalar, epsilon: Scalar, noise: Array, first: Array | int = 0) -> Array:
    """The next arm (int32, a scalar).

    The first ``N`` pulls take each arm once, from arm ``first`` on. Later it is a uniformly random one with probability
    ``epsilon``, and otherwise that of the largest of the `bounds`.

    - ``noise``: uniform in [0, 1), ``[2]``; the first element decides whether, the second which random arm.
    """
    drawn = jnp.floor(noise[1] * num_arms).astype(jnp.int32)
    best = jnp.argmax(bounds(pulls, num_arms, width)).astype(jnp.int32)
    arm = jnp.where(noise[0] < epsilon, drawn, best)
    return jnp.where(pulls.number < num_arms, (pulls.number + first) % num_arms, arm)
