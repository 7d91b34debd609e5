"""Temporal-difference errors and losses of action values and of return distributions."""

import jax
import jax.numpy as jnp

from purerl.types import Array


def huber(error: Array, delta: Array) -> Array:
    """``0.5 * error^2`` up to ``|error| = delta``, and on from there in a straight line (Huber 1964, eq. 2).

    With ``delta = 1`` its slope is the error clipped to [-1, 1], as in Mnih et al. 2015 (Methods).
    """
    bounded = jnp.clip(error, -delta, delta)
    return bounded * (error - 0.5 * bounded)


def q_learning(
    q: Array, target_q: Array, action: Array, reward: Array, discount: Array, chooser: Array, next_q: Array
) -> Array:
    """``reward + discount * next_q[argmax chooser] - q[action]``, a scalar. ``target_q`` is not used.

    With ``next_q`` as the chooser this is Mnih et al. 2015 (Nature 518, Algorithm 1); with the online network's values
    it is van Hasselt et al. 2016 (the unnumbered equation of section "Double DQN").
    """
    target = reward + discount * _at(next_q, jnp.argmax(chooser))
    return jax.lax.stop_gradient(target) - _at(q, action)


def munchausen(
    q: Array,
    target_q: Array,
    action: Array,
    reward: Array,
    discount: Array,
    chooser: Array,
    next_q: Array,
    *,
    alpha: Array = 0.9,
    temperature: Array = 0.03,
    floor: Array = -1.0,
) -> Array:
    """Munchausen's error, a scalar (Vieillard et al. 2020, arXiv 2007.14430, eq. 1 and section 3.1).

    ``reward + alpha * clip(temperature * log pi(action), floor, 0) + discount * soft - q[action]``, where
    ``soft = sum_a pi'(a) * (next_q[a] - temperature * log pi'(a))`` is ``temperature * logsumexp(next_q /
    temperature)``. ``pi`` and ``pi'`` are ``softmax(target_q / temperature)`` and ``softmax(next_q / temperature)``;
    ``temperature`` is positive and in units of the reward. ``chooser`` is not used.
    """
    log_policy = _at(jax.nn.log_softmax(target_q / temperature), action)
    bonus = alpha * jnp.clip(temperature * log_policy, floor, 0.0)
    soft = temperature * jax.nn.logsumexp(next_q / temperature)
    return jax.lax.stop_gradient(reward + bonus + discount * soft) - _at(q, action)


def categorical_q_learning(
    logits: Array,
    action: Array,
    reward: Array,
    discount: Array,
    chooser: Array,
    next_logits: Array,
    support: Array,
) -> tuple[Array, Array]:
    """Cross-entropy to the projected target, and the KL divergence from it, two scalars.

    ``logits`` and ``next_logits`` ``[A, K]`` are of distributions over the returns ``support`` ``[K]``. The target has
    the atoms ``reward + discount * support`` (Bellemare et al. 2017, arXiv 1707.06887, Algorithm 1). The divergence
    ``KL(target || online)`` is the loss less the target's entropy: the priority of Hessel et al. 2018 (arXiv
    1710.02298, section "The Integrated Agent").
    """
    probabilities = jax.nn.softmax(_at(next_logits, jnp.argmax(chooser)))
    target = jax.lax.stop_gradient(project(reward + discount * support, probabilities, support))
    loss = -jnp.sum(target * jax.nn.log_softmax(_at(logits, action)))
    return loss, loss - jnp.sum(jax.scipy.special.entr(target))


def quantile_q_learning(
    quantiles: Array,
    taus: Array,
    action: Array,
    reward: Array,
    discount: Array,
    chooser: Array,
    next_quantiles: Array,
    kappa: Array,
) -> tuple[Array, Array]:
    """Quantile Huber loss and the error of the mean, two scalars (Dabney et al. 2018, arXiv 1710.10044, eq. 10).

    ``quantiles`` ``[A, K]`` are those at the fractions ``taus`` ``[K]``, ``next_quantiles`` ``[A, M]`` those at any
    other ``M``. The loss is ``sum_i mean_j |tau_i - 1{delta_ij < 0}| * huber(delta_ij, kappa) / kappa`` with
    ``delta_ij = reward + discount * next_quantiles[argmax chooser, j] - quantiles[action, i]`` and ``kappa > 0`` (also
    IQN's, arXiv 1806.06923, eq. 3). The error is the mean over the targets minus the mean of the action's quantiles.
    """
    target = jax.lax.stop_gradient(reward + discount * _at(next_quantiles, jnp.argmax(chooser)))
    quantile = _at(quantiles, action)
    delta = target[None] - quantile[:, None]  # [K, M]
    weight = jnp.abs(jax.lax.stop_gradient(taus)[:, None] - (delta < 0))
    loss = jnp.sum(jnp.mean(weight * huber(delta, kappa) / kappa, axis=1))
    return loss, jnp.mean(target) - jnp.mean(quantile)


def project(values: Array, probabilities: Array, support: Array) -> Array:
    """Probabilities ``[K]`` of the atoms ``support`` ``[K]`` in place of those at ``values``, which may lie anywhere.

    Each value shares its probability among its two neighbours by nearness; one beyond an end gives all to the end atom
    (Bellemare et al. 2017, arXiv 1707.06887, eq. 7). ``support`` is ascending and evenly spaced.
    """
    passed = jnp.clip((values[:, None] - support[None, :-1]) / jnp.diff(support)[None], 0.0, 1.0)  # [K, K - 1]
    share = jnp.pad(passed, ((0, 0), (1, 0)), constant_values=1.0) - jnp.pad(passed, ((0, 0), (0, 1)))
    return jnp.sum(probabilities[:, None] * share, axis=0)


def rescale(x: Array, epsilon: Array = 1e-3) -> Array:
    """``sign(x) * (sqrt(|x| + 1) - 1) + epsilon * x``: returns of any size made small, elementwise.

    ``h`` of Pohlen et al. 2018 (arXiv 1805.11593, Proposition A.2), as in R2D2 (Kapturowski et al. 2019). It is
    computed as ``x / (sqrt(|x| + 1) + 1) + epsilon * x``, which loses no digits near zero.
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + epsilon * x


def unrescale(x: Array, epsilon: Array = 1e-3) -> Array:
    """The inverse of `rescale`, elementwise (Pohlen et al. 2018, arXiv 1805.11593, Proposition A.2).

    ``|x|`` comes from ``y``, and ``u = sqrt(|y| + 1) - 1`` solves ``epsilon * u^2 + (1 + 2 * epsilon) * u = |x|``. Its
    root is written without a difference of large numbers.
    """
    linear = 1 + 2 * epsilon
    u = 2 * x / (linear + jnp.sqrt(jnp.square(linear) + 4 * epsilon * jnp.abs(x)))
    return u * (jnp.abs(u) + 2)


def _at(x: Array, action: Array) -> Array:
    """``x[action]`` of ``[A]`` or ``[A, K]`` as a sum, whose gradient is no scatter."""
    chosen = (jnp.arange(x.shape[0]) == action).reshape(-1, *(1,) * (x.ndim - 1))
    return jnp.sum(jnp.where(chosen, x, 0.0), axis=0)
