"""Bandits whose arms change with time: upper confidence bounds over a window of the last pulls.

``N`` arms, ``W`` pulls in the window.
"""

from typing import NamedTuple

import jax.numpy as jnp

from purerl.types import Array, Scalar


class Pulls(NamedTuple):
    """The last pulls of arms and how many there have been.

    ``arm`` (int32) and ``reward`` are of the last pulls, both ``[W]``; ``number`` (int32) counts all pulls so far. Pull
    number ``n`` is stored at index ``n % W``.
    """

    arm: Array
    reward: Array
    number: Array


def init(window: int) -> Pulls:
    """Makes an empty record with room for ``W = window`` pulls."""
    return Pulls(jnp.zeros(window, jnp.int32), jnp.zeros(window), jnp.zeros((), jnp.int32))


def record(pulls: Pulls, arm: Array, reward: Array) -> Pulls:
    """Records one more pull, which replaces the oldest."""
    place = pulls.number % len(pulls.arm)
    return Pulls(pulls.arm.at[place].set(arm), pulls.reward.at[place].set(reward), pulls.number + 1)


def statistics(pulls: Pulls, num_arms: int) -> tuple[Array, Array]:
    """Computes how often each arm was pulled within the window, and the sum of its rewards there, both ``[N]``."""
    in_use = jnp.arange(len(pulls.arm)) < pulls.number
    own = (pulls.arm[:, None] == jnp.arange(num_arms)[None]) & in_use[:, None]
    return jnp.sum(own, axis=0).astype(jnp.float32), jnp.sum(jnp.where(own, pulls.reward[:, None], 0.0), axis=0)


def bounds(pulls: Pulls, num_arms: int, width: Scalar) -> Array:
    """Computes the upper confidence bounds ``[N]`` of the arms over the window.

    They are ``mean + width * sqrt(1 / count)``, and infinity for an arm without a pull in the window (Badia et al.
    2020, arXiv 2003.13350, eq. 4, in their simplified form).
    """
    count, total = statistics(pulls, num_arms)
    safe = jnp.maximum(count, 1.0)
    return jnp.where(count > 0, total / safe + width * jnp.sqrt(1 / safe), jnp.inf)


def choose(pulls: Pulls, num_arms: int, width: Scalar, epsilon: Scalar, noise: Array, first: Array | int = 0) -> Array:
    """Chooses the next arm.

    The first ``N`` pulls take each arm once, from arm ``first`` on. Later it is a uniformly random arm with probability
    ``epsilon``, and otherwise the one with the largest of the `bounds`.

    Args:
        pulls: The pulls so far.
        num_arms: The number of arms ``N``.
        width: The factor of the confidence bounds' width.
        epsilon: The probability of a random arm.
        noise: ``[2]``, uniform in [0, 1). The first element decides whether the arm is random, the second which it is.
        first: The arm that is pulled first.

    Returns:
        An arm, an int32 scalar.
    """
    drawn = jnp.floor(noise[1] * num_arms).astype(jnp.int32)
    best = jnp.argmax(bounds(pulls, num_arms, width)).astype(jnp.int32)
    arm = jnp.where(noise[0] < epsilon, drawn, best)
    return jnp.where(pulls.number < num_arms, (pulls.number + first) % num_arms, arm)
