"""Temporal-difference (TD) errors and losses of action values and of return distributions.

A TD error is target minus prediction. The functions from `q_learning` to `quantile_huber` take one transition, and
callers vmap them; `huber`, `rescale` and `unrescale` are elementwise. Shared arguments:

- ``q`` ``[A]``, ``logits`` or ``quantiles`` ``[A, K]``: the online network's output for the observation. It is the only
  argument that gradients flow into.
- ``target_q`` ``[A]``: the target network's action values of the same observation.
- ``action`` (int): the action taken.
- ``reward`` (scalar): the reward, or the discounted sum of ``h`` rewards of a transition over ``h`` steps.
- ``discount`` (scalar): ``gamma^h * (1 - terminated)``.
- ``chooser`` ``[A]``: action values of the next observation; their argmax is the next action. Those of the online
  network give double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461).
- ``next_q`` ``[A]``, ``next_logits`` or ``next_quantiles`` ``[A, K]``: the target network's output for the next
  observation.
"""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.types import Array, Scalar

__all__ = [
    "categorical_q_learning",
    "cross_entropy",
    "huber",
    "huber_loss",
    "munchausen",
    "project",
    "q_learning",
    "quantile_huber",
    "quantile_q_learning",
    "rescale",
    "support",
    "unrescale",
]


def huber(error: Array, delta: Scalar) -> Array:
    """Computes the Huber loss: ``0.5 * error^2`` up to ``|error| = delta``, linear beyond it (Huber 1964, eq. 2).

    With ``delta = 1`` its slope is the error clipped to [-1, 1], as in Mnih et al. 2015 (Methods). `optax.huber_loss`
    rounds otherwise.
    """
    bounded = jnp.clip(error, -delta, delta)
    return bounded * (error - 0.5 * bounded)


def huber_loss(error: Array, config: Any) -> Array:
    """Computes the `huber` loss of TD errors, elementwise, with the threshold ``config.huber_delta``."""
    return huber(error, config.huber_delta)


def least(q: Array) -> Array:
    """Computes the least of ``K`` critics' values ``[..., K]``, for clipped double Q-learning. ``[...]``.

    Fujimoto et al. 2018, arXiv 1802.09477, eq. 10. The gradient goes to one of the values. The gradient of
    `jax.numpy.min` is divided by the number of values that equal the least, which is 0 where a compiler computes the
    two of them in different ways.
    """
    chosen = jnp.argmin(jax.lax.stop_gradient(q), axis=-1)
    return jnp.sum(q * jax.nn.one_hot(chosen, q.shape[-1]), axis=-1)


def q_learning(
    q: Array, target_q: Array, action: Array, reward: Array, discount: Array, chooser: Array, next_q: Array
) -> Array:
    """Computes the TD error of Q-learning, a scalar: ``reward + discount * next_q[argmax chooser] - q[action]``.

    With ``next_q`` as the chooser this is Mnih et al. 2015 (Nature 518, Algorithm 1); with the online network's values
    it is van Hasselt et al. 2016 (the unnumbered equation of section "Double DQN").

    Args:
        q: ``[A]``; see the module docstring for all arguments.
        target_q: ``[A]``, not used; `munchausen` has the same arguments and needs it.
        action: An int.
        reward: A scalar.
        discount: A scalar.
        chooser: ``[A]``.
        next_q: ``[A]``.
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
    alpha: Scalar = 0.9,
    temperature: Scalar = 0.03,
    floor: Scalar = -1.0,
) -> Array:
    """Computes the TD error of Munchausen DQN, a scalar (Vieillard et al. 2020, arXiv 2007.14430, eq. 1).

    The error is ``reward + alpha * clip(temperature * log pi(action), floor, 0) + discount * soft - q[action]``
    (section 3.1), where ``soft = sum_a pi'(a) * (next_q[a] - temperature * log pi'(a))`` is computed as
    ``temperature * logsumexp(next_q / temperature)``. ``pi`` and ``pi'`` are ``softmax(target_q / temperature)`` and
    ``softmax(next_q / temperature)``.

    Args:
        q: ``[A]``; see the module docstring for the first seven arguments.
        target_q: ``[A]``.
        action: An int.
        reward: A scalar.
        discount: A scalar.
        chooser: ``[A]``, not used.
        next_q: ``[A]``.
        alpha: The scale of the Munchausen bonus, in [0, 1].
        temperature: The temperature of both softmax policies, positive, in units of the reward.
        floor: The lower clip of the bonus before scaling, at most 0, in units of the reward.
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
    """Computes C51's cross-entropy loss, and the divergence ``KL(target || online)``, two scalars.

    The target distribution has the atoms ``reward + discount * support``, projected on ``support`` (Bellemare et al.
    2017, arXiv 1707.06887, Algorithm 1). The KL divergence is the loss minus the target's entropy; it is the priority
    of Hessel et al. 2018 (arXiv 1710.02298, section "The Integrated Agent").

    Args:
        logits: ``[A, K]``, the online network's, of a distribution over ``support`` for each action.
        action: An int; see the module docstring for this and the next three.
        reward: A scalar.
        discount: A scalar.
        chooser: ``[A]``.
        next_logits: ``[A, K]``, the target network's, of a distribution over ``support`` for each action.
        support: ``[K]``, the atoms (returns), ascending and evenly spaced.
    """
    probabilities = jax.nn.softmax(_at(next_logits, jnp.argmax(chooser)))
    target = jax.lax.stop_gradient(project(reward + discount * support, probabilities, support))
    return cross_entropy(_at(logits, action), target)


def cross_entropy(logits: Array, target: Array) -> tuple[Array, Array]:
    """Computes the cross-entropy of a categorical distribution to its target, and ``KL(target || softmax(logits))``.

    Both are scalars; gradients flow into ``logits`` alone (Bellemare et al. 2017, arXiv 1707.06887, Algorithm 1).

    Args:
        logits: ``[K]``.
        target: ``[K]``, probabilities.
    """
    target = jax.lax.stop_gradient(target)
    loss = -jnp.sum(target * jax.nn.log_softmax(logits))
    return loss, loss - jnp.sum(jax.scipy.special.entr(target))


def quantile_q_learning(
    quantiles: Array,
    taus: Array,
    action: Array,
    reward: Array,
    discount: Array,
    chooser: Array,
    next_quantiles: Array,
    kappa: Scalar,
) -> tuple[Array, Array]:
    """Computes the quantile Huber loss and the TD error of the mean, two scalars (Dabney et al. 2018, eq. 10).

    arXiv 1710.10044. The loss is ``sum_i mean_j |tau_i - 1{delta_ij < 0}| * huber(delta_ij, kappa) / kappa`` with
    ``delta_ij = reward + discount * next_quantiles[argmax chooser, j] - quantiles[action, i]`` (for IQN: arXiv
    1806.06923, eq. 3). The TD error is the mean of the target's quantiles minus the mean of the action's quantiles.

    Args:
        quantiles: ``[A, K]``, the online network's, at the fractions ``taus``.
        taus: ``[K]``, quantile fractions in (0, 1).
        action: An int; see the module docstring for this and the next three.
        reward: A scalar.
        discount: A scalar.
        chooser: ``[A]``.
        next_quantiles: ``[A, M]``, the target network's, at any ``M`` fractions.
        kappa: The Huber loss's threshold, positive.
    """
    target = jax.lax.stop_gradient(reward + discount * _at(next_quantiles, jnp.argmax(chooser)))
    return quantile_huber(_at(quantiles, action), taus, target, kappa)


def quantile_huber(quantiles: Array, taus: Array, target: Array, kappa: Scalar) -> tuple[Array, Array]:
    """Computes the quantile Huber loss of samples of a return, and the TD error of the mean, two scalars.

    Dabney et al. 2018, arXiv 1710.10044, eq. 10. Gradients flow into ``quantiles`` alone.

    Args:
        quantiles: ``[K]``, at the fractions ``taus``.
        taus: ``[K]``, quantile fractions in (0, 1).
        target: ``[M]``, equally likely values of the return.
        kappa: The Huber loss's threshold, positive.
    """
    target = jax.lax.stop_gradient(target)
    delta = target[None] - quantiles[:, None]  # [K, M]
    weight = jnp.abs(jax.lax.stop_gradient(taus)[:, None] - (delta < 0))
    loss = jnp.sum(jnp.mean(weight * huber(delta, kappa) / kappa, axis=1))
    return loss, jnp.mean(target) - jnp.mean(quantiles)


def support(low: Scalar, high: Scalar, size: int) -> Array:
    """Computes ``size`` atoms ``[size]``, evenly spaced from ``low`` to ``high``, both included."""
    return low + (high - low) * jnp.linspace(0.0, 1.0, size)


def project(values: Array, probabilities: Array, support: Array) -> Array:
    """Projects a categorical distribution onto the atoms ``support`` (Bellemare et al. 2017, arXiv 1707.06887, eq. 7).

    The distribution has ``probabilities`` at ``values``. The probability of each value is split between its two
    neighbouring atoms in proportion to proximity; a value outside the support goes to the nearest end.

    Args:
        values: ``[V]``.
        probabilities: ``[V]``.
        support: ``[K]``, ascending.

    Returns:
        Probabilities ``[K]``.
    """
    passed = jnp.clip((values[:, None] - support[None, :-1]) / jnp.diff(support)[None], 0.0, 1.0)  # [V, K - 1]
    share = jnp.pad(passed, ((0, 0), (1, 0)), constant_values=1.0) - jnp.pad(passed, ((0, 0), (0, 1)))
    return jnp.sum(probabilities[:, None] * share, axis=0)


def rescale(x: Array, epsilon: Scalar = 1e-3) -> Array:
    """Compresses large returns: ``h(x) = sign(x) * (sqrt(|x| + 1) - 1) + epsilon * x``, elementwise.

    Value rescaling of Pohlen et al. 2018 (arXiv 1805.11593, Proposition A.2), as in R2D2 (Kapturowski et al. 2019). It
    is computed as ``x / (sqrt(|x| + 1) + 1) + epsilon * x``, which is free of cancellation near zero.
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + epsilon * x


def unrescale(x: Array, epsilon: Scalar = 1e-3) -> Array:
    """Computes the inverse of `rescale`, elementwise (Pohlen et al. 2018, arXiv 1805.11593, Proposition A.2).

    For ``x = rescale(y)`` this returns ``y``: ``u = sqrt(|y| + 1) - 1`` solves
    ``epsilon * u^2 + (1 + 2 * epsilon) * u = |x|``, and the root is written in a form without cancellation.
    """
    linear = 1 + 2 * epsilon
    u = 2 * x / (linear + jnp.sqrt(jnp.square(linear) + 4 * epsilon * jnp.abs(x)))
    return u * (jnp.abs(u) + 2)


def joined(extrinsic: Array, intrinsic: Array, beta: Scalar, epsilon: Scalar = 1e-3) -> Array:
    """Computes the value of both rewards ``h(h^-1(extrinsic) + beta * h^-1(intrinsic))``, elementwise.

    Both values are compressed by `rescale` (``h``) (Badia et al. 2020, arXiv 2003.13350, eq. 2). ``beta`` is used
    nowhere else.
    """
    return rescale(unrescale(extrinsic, epsilon) + beta * unrescale(intrinsic, epsilon), epsilon)


def _at(x: Array, action: Array) -> Array:
    """Selects ``x[action]`` of ``[A]`` or ``[A, K]``, as a masked sum: its gradient needs no scatter."""
    chosen = (jnp.arange(x.shape[0]) == action).reshape(-1, *(1,) * (x.ndim - 1))
    return jnp.sum(jnp.where(chosen, x, 0.0), axis=0)
