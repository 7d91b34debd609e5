"""Exploration: epsilon-greedy actions, Ape-X's epsilons for its environments, and noise that is correlated in time."""

import jax.numpy as jnp

from purerl.types import Array, Scalar

ILLEGAL = -1e9
"""The value or logit of an illegal action: below all others, but finite, so that no sum over actions becomes nan."""


def masked(values: Array, legal: Array | None) -> Array:
    """Replaces the values or logits ``[..., A]`` of illegal actions by `ILLEGAL`.

    ``legal`` ``[..., A]`` is True for legal actions; None masks nothing.
    """
    return values if legal is None else jnp.where(legal, values, ILLEGAL)


def disturbed(action: Array, noise: Array, deviation: Scalar, most: Scalar) -> Array:
    """Adds clipped noise to the actions of targets (Fujimoto et al. 2018, arXiv 1802.09477, eq. 14).

    Args:
        action: Actions scaled to [-1, 1], ``[..., D]``.
        noise: Standard normal, ``[..., D]``.
        deviation: The standard deviation of the noise that is added.
        most: The largest magnitude of it.
    """
    return jnp.clip(action + jnp.clip(deviation * noise, -most, most), -1.0, 1.0)


def epsilon_greedy(q: Array, epsilon: Scalar, noise: Array, legal: Array | None = None) -> Array:
    """Chooses the action of the largest value, or with probability ``epsilon`` a random one (Mnih et al. 2015).

    A random action is drawn uniformly from those that are legal.

    Args:
        q: Action values ``[..., A]``, those of illegal actions `masked`.
        epsilon: A scalar or ``[...]``.
        noise: ``[..., 2]``, uniform in [0, 1). The first element decides whether the action is random, the second which
            it is.
        legal: Which actions are legal, bool ``[..., A]``; None: all.

    Returns:
        Actions, int32 ``[...]``.
    """
    if legal is None:
        random = jnp.floor(noise[..., 1] * q.shape[-1]).astype(jnp.int32)
    else:
        rank = jnp.cumsum(legal, axis=-1)
        chosen = jnp.floor(noise[..., 1] * rank[..., -1])
        random = jnp.argmax(rank > chosen[..., None], axis=-1).astype(jnp.int32)
    return jnp.where(noise[..., 0] < epsilon, random, jnp.argmax(q, axis=-1).astype(jnp.int32))


def epsilon_ladder(epsilon: Scalar, exponent: Scalar, num_envs: int) -> Array:
    """Computes the epsilons ``[B]`` of ``B = num_envs`` environments: ``epsilon ** (1 + exponent * i / (B - 1))``.

    Ape-X (Horgan et al. 2018, arXiv 1803.00933, section 4.1) uses ``epsilon`` 0.4 and ``exponent`` 7. Both are scalars;
    ``epsilon`` lies in [0, 1]. A single environment gets ``epsilon``.
    """
    return epsilon ** (1 + exponent * jnp.arange(num_envs) / max(num_envs - 1, 1))


def ornstein_uhlenbeck(state: Array, noise: Array, damping: Scalar, deviation: Scalar) -> Array:
    """Computes the next state of a process that drifts back to 0: ``(1 - damping) * state + deviation * noise``.

    Elementwise. Uhlenbeck & Ornstein 1930, in steps of one, as in Lillicrap et al. 2016 (arXiv 1509.02971, section 3).
    ``noise`` is standard normal.
    """
    return (1 - damping) * state + deviation * noise


def kept_or_drawn(kept: Array, uniform: Array, low: Scalar, high: Scalar) -> Array:
    """Draws a size of the noise from ``[low, high)`` for each environment that has none yet, whose ``kept`` is 0.

    Elementwise. FastTD3 (Seo et al. 2025, arXiv 2505.22642) keeps the size of an environment's noise for an episode, so
    that a fleet explores with small and with large noise at once. ``uniform`` is drawn from [0, 1).
    """
    return jnp.where(kept == 0.0, low + (high - low) * uniform, kept)
