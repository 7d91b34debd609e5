"""Action distributions, as `Distribution` bundles over the parameters that a network puts out; epsilon-greedy."""

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.types import Array, Box, Discrete, Distribution, Space


def categorical(num_actions: int) -> Distribution:
    """Over ``0 .. A - 1``; the parameters are logits ``[..., A]``, the noise is Gumbel ``[..., A]``.

    Sampling is the Gumbel-max trick: ``argmax(logits + noise)``.
    """

    def log_prob(logits, action):
        log_probs = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.where(action[..., None] == _actions(logits), log_probs, 0.0), axis=-1)

    def entropy(logits):
        log_probs = jax.nn.log_softmax(logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    return Distribution(
        num_params=num_actions,
        num_free=0,
        noise=lambda key, shape: draw.gumbel(key, (*shape, num_actions)),
        sample=lambda logits, noise: jnp.argmax(logits + noise, axis=-1).astype(jnp.int32),
        mode=lambda logits: jnp.argmax(logits, axis=-1).astype(jnp.int32),
        log_prob=log_prob,
        entropy=entropy,
    )


def _actions(logits):
    """``0 .. A - 1``, shaped to compare with ``action[..., None]``."""
    return jnp.arange(logits.shape[-1]).reshape((1,) * (logits.ndim - 1) + (-1,))


def gaussian(space: Box) -> Distribution:
    """A diagonal Gaussian over a Box of ``D`` dimensions; the parameters are means and log standard deviations
    ``[..., 2 * D]``, in units in which the Box is [-1, 1] (a side without finite bounds keeps its own units).

    Samples may leave the Box; environments clip. The noise is standard normal ``[..., D]``.
    """
    size = int(np.prod(space.shape))
    low, high = (np.broadcast_to(np.asarray(b, np.float32), space.shape) for b in (space.low, space.high))
    bounded = np.isfinite(low) & np.isfinite(high)
    centre = np.where(bounded, (np.where(bounded, high, 0) + np.where(bounded, low, 0)) / 2, 0).astype(np.float32)
    scale = np.where(bounded, (np.where(bounded, high, 0) - np.where(bounded, low, 0)) / 2, 1).astype(np.float32)
    log_scale = np.sum(np.log(scale))

    def to_action(unit):
        unit = unit.reshape(*unit.shape[:-1], *space.shape)
        return unit * _like(scale, unit) + _like(centre, unit)

    def log_prob(params, action):
        mean, log_std = jnp.split(params, 2, axis=-1)
        unit = ((action - _like(centre, action)) / _like(scale, action)).reshape(mean.shape)
        z = (unit - mean) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * jnp.square(z) + log_std, axis=-1) - (0.5 * size * np.log(2 * np.pi) + log_scale)

    def entropy(params):
        log_std = jnp.split(params, 2, axis=-1)[1]
        return jnp.sum(log_std, axis=-1) + (0.5 * size * np.log(2 * np.pi * np.e) + log_scale)

    def sample(params, noise):
        mean, log_std = jnp.split(params, 2, axis=-1)
        return to_action(mean + jnp.exp(log_std) * noise)

    return Distribution(
        num_params=2 * size,
        num_free=size,
        noise=lambda key, shape: draw.normal(key, (*shape, size)),
        sample=sample,
        mode=lambda params: to_action(jnp.split(params, 2, axis=-1)[0]),
        log_prob=log_prob,
        entropy=entropy,
    )


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


def _like(constant, array):
    """``constant`` with leading axes of length one, to combine with ``array`` without rank promotion."""
    return constant.reshape((1,) * (array.ndim - constant.ndim) + constant.shape)


def for_space(space: Space) -> Distribution:
    """The usual family for an action space: `categorical` for Discrete, `gaussian` for Box."""
    return categorical(space.n) if isinstance(space, Discrete) else gaussian(space)
