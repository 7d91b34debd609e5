"""Learning from recorded play: expectiles, weights of advantages, and values of actions that nobody took."""

import math

import jax
import jax.numpy as jnp

from purerl.types import Array, Scalar


def expectile_loss(error: Array, expectile: Scalar) -> Array:
    """Computes the asymmetric square ``|expectile - 1(error < 0)| * error^2``, elementwise.

    Kostrikov et al. 2021 (arXiv 2110.06169, eq. 5): what minimises its mean over samples of ``target - value`` is the
    ``expectile`` of the targets, their mean for 0.5 and near to their maximum for 1.

    Args:
        error: ``target - value`` ``[...]``.
        expectile: A number in (0, 1).
    """
    return jnp.where(error < 0, 1.0 - expectile, expectile) * jnp.square(error)


def advantage_weight(advantage: Array, inverse_temperature: Scalar, most: Scalar) -> Array:
    """Computes ``min(exp(inverse_temperature * advantage), most)``, through which no gradient flows.

    Weights of advantage-weighted regression (Peng et al. 2019, arXiv 1910.00177, eq. 14), clipped as by Kostrikov et
    al. 2021 (arXiv 2110.06169, appendix C).

    Args:
        advantage: ``[...]``.
        inverse_temperature: A number; 0: all weights are 1, which is behaviour cloning.
        most: The largest weight.
    """
    exponent = jnp.minimum(inverse_temperature * jax.lax.stop_gradient(advantage), jnp.log(jnp.float32(most)))
    return jnp.exp(exponent)


def log_integral(q: Array, log_density: Array) -> Array:
    """Estimates ``log integral exp(q(a)) da`` from sampled actions, ``[...]``: ``log mean_m exp(q_m - log_density_m)``.

    Kumar et al. 2020 (arXiv 2006.04779, appendix F): the soft maximum of a conservative critic over all actions, by
    importance sampling.

    Args:
        q: Values of ``M`` actions ``[..., M]``.
        log_density: Log-densities by which they were drawn ``[..., M]``, in nats.
    """
    return jax.scipy.special.logsumexp(q - log_density, axis=-1) - math.log(q.shape[-1])
