"""Policy improvement within bounds on KL divergences: MPO's and V-MPO's weights, duals and divergences.

An E-step gives actions the weights of the best distribution whose divergence from a prior is bounded. An M-step fits
the policy to these weights, within a bound on its divergence from an older policy. Each bound has a dual variable: the
temperature that of the E-step, a multiplier for each of the M-step's.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.spaces import Box, MultiDiscrete, Space
from purerl.trees import like
from purerl.types import Array, Scalar


def e_step_weights(values: Array, log_prior: Array, temperature: Scalar) -> Array:
    """Computes the weights of the E-step: ``prior * exp(values / temperature)``, normalised over the last axis.

    Abdolmaleki et al. 2018 (arXiv 1806.06920, eq. 7), where the prior is the policy and values are those of its
    actions; Song et al. 2019 (arXiv 1909.12238, eq. 4), where the prior is uniform over the chosen half of a batch and
    values are advantages.

    Args:
        values: ``[..., A]``.
        log_prior: Logarithms of the prior ``[..., A]``; -inf gives the weight 0. It need not be normalised.
        temperature: A positive scalar.

    Returns:
        ``[..., A]``, which sum to 1.
    """
    return jax.nn.softmax(_tilted(values, log_prior, temperature))


def temperature_dual(temperature: Scalar, values: Array, log_prior: Array, bound: Scalar) -> Array:
    """Computes the dual of the E-step, to be minimised over the temperature.

    ``temperature * (bound + log sum_a prior_a exp(values_a / temperature))``: Abdolmaleki et al. 2018
    (arXiv 1806.06920, eq. 8); Song et al. 2019 (arXiv 1909.12238, eq. 5). At its minimum the divergence of
    `e_step_weights` from the prior is ``bound``.

    Args:
        temperature: A positive scalar.
        values: ``[..., A]``.
        log_prior: ``[..., A]``, logarithms of a prior that sums to 1.
        bound: A scalar, in nats.

    Returns:
        ``[...]``.
    """
    return temperature * (bound + jax.nn.logsumexp(_tilted(values, log_prior, temperature), axis=-1))


def _tilted(values: Array, log_prior: Array, temperature: Scalar) -> Array:
    """Returns logarithms of the E-step's weights before they are normalised.

    The temperature's gradient by a quotient has other bits under vmap (XLA takes factors out of the sum); that by a
    reciprocal has not.
    """
    return log_prior + values * (1 / temperature)


def multiplier_dual(multiplier: Array, divergence: Array, bound: Array) -> Array:
    """Computes the loss of the multiplier of a divergence, elementwise: ``multiplier * (bound - divergence)``.

    Song et al. 2019 (arXiv 1909.12238, eq. 6). Minimising it raises the multiplier while the divergence, through which
    no gradient flows, is above its bound.
    """
    return multiplier * (bound - jax.lax.stop_gradient(divergence))


def weight_divergence(weights: Array, log_prior: Array) -> Array:
    """Computes the divergence of weights from their prior, ``KL(weights || prior)`` in nats. ``[..., A]`` to ``[...]``.

    Args:
        weights: `e_step_weights`.
        log_prior: Logarithms of a prior that sums to 1.
    """
    positive = weights > 0
    ratio = jnp.log(jnp.where(positive, weights, 1.0)) - jnp.where(positive, log_prior, 0.0)
    return jnp.sum(weights * ratio, axis=-1)


class Divergences(NamedTuple):
    """The divergences of a policy from an older one that have bounds of their own.

    - ``names``: The names of ``C`` bounds in a config, and of the divergences as metrics.
    - ``between(old, new)``: the divergences ``[..., C]`` in nats of policies, given the parameters of both.
    """

    names: tuple[str, ...]
    between: Callable[[Array, Array], Array]


def categorical(sizes: Sequence[int]) -> Divergences:
    """Makes the divergence ``KL(old || new)`` of independent categorical policies.

    Their parameters are logits ``[..., sum(sizes)]``, which may be masked by large negative numbers.
    """
    ends = np.cumsum(sizes)[:-1]

    def each(old: Array, new: Array) -> Array:
        log_old, log_new = (jax.nn.log_softmax(logits) for logits in (old, new))
        return jnp.sum(jnp.exp(log_old) * (log_old - log_new), axis=-1)

    def between(old: Array, new: Array) -> Array:
        parts = zip(*(jnp.split(logits, ends, axis=-1) for logits in (old, new)), strict=True)
        return jnp.stack([sum(each(*part) for part in parts)], axis=-1)

    return Divergences(("m_step_kl",), between)


def gaussian(moves: np.ndarray) -> Divergences:
    """Makes the divergences of diagonal Gaussian policies: that of the means, and that of the standard deviations.

    Abdolmaleki et al. 2018 (arXiv 1812.02256, section 4.2.2 and its appendix): the new policy with the old standard
    deviations, ``KL(N(m', s') || N(m, s')) = sum ((m - m') / s')^2 / 2``, and with the old means,
    ``KL(N(m', s') || N(m', s)) = sum (s'^2 / s^2 - 1) / 2 + log(s / s')``, where ``m'`` and ``s'`` are old.

    Args:
        moves: Which of ``D`` dimensions are no constants, bool ``[D]``: the others have no share.
            The parameters are means and logarithms of standard deviations ``[..., 2 * D]``.
    """

    def between(old: Array, new: Array) -> Array:
        (old_mean, old_log_std), (mean, log_std) = (jnp.split(params, 2, axis=-1) for params in (old, new))
        wider = log_std - old_log_std
        of_mean = 0.5 * jnp.square((mean - old_mean) * jnp.exp(-old_log_std))
        of_deviation = 0.5 * jnp.expm1(-2 * wider) + wider
        return jnp.stack(
            [jnp.sum(jnp.where(like(moves, x), x, 0.0), axis=-1) for x in (of_mean, of_deviation)], axis=-1
        )

    return Divergences(("m_step_kl", "m_step_kl_deviation"), between)


def for_space(space: Space) -> Divergences:
    """Makes the divergences of policies with the parameters of `distributions.for_space`."""
    if isinstance(space, Box):
        return gaussian(np.ravel(spaces.unit(space)[1]) > 0)
    return categorical(space.sizes if isinstance(space, MultiDiscrete) else (space.n,))
