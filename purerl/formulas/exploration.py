"""Epsilon-greedy action choice, and how epsilon is spread over environments."""

import jax.numpy as jnp

from purerl.types import Array


def epsilon_greedy(q: Array, epsilon: Array, noise: Array) -> Array:
    """The action of the largest value in ``q`` ``[..., A]``, or with chance ``epsilon`` any action (Mnih et al. 2015).

    ``noise`` ``[..., 2]`` is uniform in [0, 1): its first half decides which, its second is the action. ``epsilon`` is
    a scalar or ``[...]``. Returns int32 ``[...]``.
    """
    random = jnp.floor(noise[..., 1] * q.shape[-1]).astype(jnp.int32)
    return jnp.where(noise[..., 0] < epsilon, random, jnp.argmax(q, axis=-1).astype(jnp.int32))


def epsilon_ladder(epsilon: Array, exponent: Array, num_envs: int) -> Array:
    """A chance of a random action for each of ``B`` environments, ``epsilon ** (1 + exponent * i / (B - 1))``. ``[B]``.

    Ape-X (Horgan et al. 2018, arXiv 1803.00933, section 4.1) has ``epsilon`` 0.4 and ``exponent`` 7. Both are scalars;
    ``epsilon`` lies in [0, 1]. One environment alone gets ``epsilon``.
    """
    return epsilon ** (1 + exponent * jnp.arange(num_envs) / max(num_envs - 1, 1))
