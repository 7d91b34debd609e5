"""Maximum-entropy reinforcement learning: squashed Gaussians, soft values, and the loss of the temperature.

``temperature`` is the price of a nat of entropy in units of the reward, the alpha of Haarnoja et al. 2018
(arXiv 1801.01290, 1812.05905).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from purerl.formulas.td_errors import least
from purerl.trees import like
from purerl.types import Array, Scalar

LOG_STD_RANGE = -10.0, 2.0
"""The range to which the logarithm of a squashed Gaussian's standard deviation is clipped."""


def squashed_sample(params: Array, noise: Array, moving: np.ndarray | None = None) -> tuple[Array, Array]:
    """Samples from a Gaussian that tanh squashes into the box [-1, 1], and computes the logarithm of its density there.

    Haarnoja et al. 2018 (arXiv 1801.01290, appendix C, eq. 20 and 21): ``action = tanh(u)``,
    ``log pi = log N(u) - sum log(1 - tanh(u)^2)``. The last logarithm is written ``2 (log 2 - u - softplus(-2 u))``,
    which does not overflow.

    Args:
        params: ``[..., 2 * D]``, means and logarithms of the standard deviations of ``u``; the latter are clipped to
            `LOG_STD_RANGE`.
        noise: ``[..., D]``, standard normal.
        moving: Which dimensions are no constants, ``[D]``; None: all. Constants are 0 and have no density.

    Returns:
        Actions ``[..., D]`` and log-densities ``[...]`` in nats, with regard to the box [-1, 1].
    """
    mean, log_std = jnp.split(params, 2, axis=-1)
    log_std = jnp.clip(log_std, *LOG_STD_RANGE)
    u = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    action, log_prob = jnp.tanh(u), log_normal - 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
    if moving is not None:
        action, log_prob = (jnp.where(like(moving, x), x, 0.0) for x in (action, log_prob))
    return action, jnp.sum(log_prob, axis=-1)


def squashed_mode(params: Array) -> Array:
    """Computes the squashed mean, the action ``[..., D]`` of a policy that does not explore.

    ``params`` is ``[..., 2 * D]``.
    """
    return jnp.tanh(jnp.split(params, 2, axis=-1)[0])


def soft_value(q: Array, log_prob: Array, temperature: Scalar) -> Array:
    """Estimates a state's soft value ``[...]`` from one action: ``min_k q_k - temperature * log_prob``.

    Haarnoja et al. 2018 (arXiv 1812.05905, eq. 3), with the smallest of ``K`` critics (section 6).

    Args:
        q: ``[..., K]``, the critics' values of the action.
        log_prob: ``[...]``, the action's log-probability.
        temperature: A scalar.
    """
    return less_cost(least(q), log_prob, temperature)


def less_cost(value: Array, log_prob: Array, temperature: Scalar) -> Array:
    """Computes ``value - temperature * log_prob``: what is left of a value once its action's information is paid.

    Haarnoja et al. 2018 (arXiv 1812.05905, eq. 3).

    Args:
        value: ``[...]``, or the atoms ``[..., J]`` of a distribution of it.
        log_prob: ``[...]``, the action's log-probability.
        temperature: A scalar.
    """
    cost = temperature * log_prob
    return value - cost.reshape(cost.shape + (1,) * (value.ndim - cost.ndim))


def expected_soft_value(q: Array, log_probs: Array, temperature: Scalar) -> Array:
    """Computes the soft value of a policy over discrete actions: ``sum_a pi(a) (q_a - temperature * log pi(a))``.

    Christodoulou 2019 (arXiv 1910.07207, eq. 10).

    Args:
        q: ``[..., A]``, action values.
        log_probs: ``[..., A]``, log-probabilities.
        temperature: A scalar.

    Returns:
        ``[...]``.
    """
    return jnp.sum(jnp.exp(log_probs) * (q - temperature * log_probs), axis=-1)


def temperature_loss(log_temperature: Array, entropy: Array, target_entropy: Scalar) -> Array:
    """Computes the loss of the temperature, elementwise: ``temperature * (entropy - target_entropy)``.

    Haarnoja et al. 2018 (arXiv 1812.05905, eq. 18), with ``entropy = -log pi``: minimising it raises the temperature
    while the policy's entropy is below its target.
    """
    return jnp.exp(log_temperature) * (jax.lax.stop_gradient(entropy) - target_entropy)
