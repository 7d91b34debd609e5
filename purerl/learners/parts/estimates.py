"""Advantages and targets of a trajectory, one environment at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.formulas import returns
from purerl.networks import ActorCritic
from purerl.types import Array, PyTree, Scalar, Scores


class Experience(NamedTuple):
    """A trajectory ``[T, B]`` as it is learned from: observations normalised, rewards scaled.

    ``log_prob`` is that of the action under the policy that took it, ``carry`` the one before each step. ``acting`` is
    False where the action was ignored, and ``present`` where there is nothing to learn from at all; each is ``()`` if
    it is True everywhere.
    """

    obs: PyTree
    action: Array
    log_prob: Array
    carry: PyTree
    reward: Array
    discount: Array
    last: Array
    next_obs: PyTree
    acting: Array | tuple[()] = ()
    present: Array | tuple[()] = ()


class Columns(NamedTuple):
    """What an estimate reads of one environment, all ``[T]``.

    ``log_prob`` is that of the action under the policy that learns; ``log_ratio`` is that less the one under the policy
    that acted. ``value`` and ``next_value`` are the critic's, ``[T, K]`` if it predicts K things.
    """

    log_prob: Array
    log_ratio: Array
    reward: Array
    value: Array
    next_value: Array
    discount: Array
    last: Array


Estimate = Callable[[Columns], tuple[Array, Array]]
"""A function ``columns -> (advantage [T], target [T])`` of one environment; targets are ``[T, K]`` for K
predictions."""


def by_gae(gae_lambda: Scalar) -> Estimate:
    """Makes the estimate of generalised advantages and their lambda returns (`returns.gae`).

    It does not correct for the difference to the policy that acted.
    """

    def estimate(columns: Columns) -> tuple[Array, Array]:
        advantage = returns.gae(
            columns.reward, columns.value, columns.next_value, columns.discount, columns.last, gae_lambda
        )
        return advantage, advantage + columns.value

    return estimate


def vtrace_weights(log_ratio: Array, config: Any) -> tuple[Array, Array]:
    """Computes V-trace's weights (`returns.vtrace_weights`).

    Args:
        log_ratio: Log-probability under the policy that learns less that under the policy that acted.
        config: Settings, of which it reads ``trace_lambda``, ``rho_bar`` and ``c_bar``.
    """
    return returns.vtrace_weights(log_ratio, config.trace_lambda, config.rho_bar, config.c_bar)


def by_weights(weights: Callable[[Array, Any], tuple[Array, Array]], config: Any) -> Estimate:
    """Makes an estimate that corrects by weights for the difference to the policy that acted.

    It uses `returns.weighted_returns`.

    Args:
        weights: ``weights(log_ratio, config)`` returns ``rho`` and ``c``.
        config: Argument of ``weights``.
    """

    def estimate(columns: Columns) -> tuple[Array, Array]:
        rho, c = weights(columns.log_ratio, config)
        return returns.weighted_returns(
            rho, c, columns.reward, columns.value, columns.next_value, columns.discount, columns.last
        )

    return estimate


def evaluate(network: ActorCritic, params: PyTree, experience: Experience) -> tuple[Array, Array, Array]:
    """Computes policies and values of the steps of a trajectory, and values of their next observations.

    The bootstrap value after a truncated step uses the carry from after that step.

    Args:
        network: The actor and the critic.
        params: Their parameters.
        experience: The trajectory ``[T, B]``.

    Returns:
        Parameters of the distributions of actions, values, and values of the next observations, all with leading axes
        ``[T, B]``.
    """
    carry = jax.tree.map(lambda x: x[0], experience.carry)
    policy, value, carries = network.unroll(params, experience.obs, carry, experience.last)
    return policy, value, network.value(params, experience.next_obs, carries)


def estimates(
    estimate: Estimate, log_prob: Array, log_ratio: Array, experience: Experience, value: Array, next_value: Array
) -> tuple[Array, Array]:
    """Applies ``estimate`` to each environment. Ignored actions have a ratio of 1.

    Args:
        estimate: The estimate of one environment.
        log_prob: Log-probabilities of the actions under the policy that learns ``[T, B]``.
        log_ratio: Those less the ones under the policy that acted ``[T, B]``.
        experience: The trajectory ``[T, B]``.
        value: Values of the observations, ``[T, B]`` or ``[T, B, K]``.
        next_value: Values of the next observations, ``[T, B]`` or ``[T, B, K]``.

    Returns:
        Advantages ``[T, B]`` and targets, which are shaped as the values are.
    """
    if not isinstance(experience.acting, tuple):
        log_ratio = jnp.where(experience.acting, log_ratio, 0.0)
    columns = Columns(log_prob, log_ratio, experience.reward, value, next_value, experience.discount, experience.last)
    return jax.vmap(estimate, in_axes=1, out_axes=1)(columns)


def first(value: Array, advantage: Array) -> Array:
    """Returns values, or the first of predictions, which have one axis more than advantages."""
    return value[..., 0] if value.ndim > advantage.ndim else value


def scores(value: Array, advantage: Array) -> Scores:
    """Makes `Scores` of advantages ``[T, B]`` and of values ``[T, B]``, or of ``[T, B, K]`` the first."""
    return Scores(first(value, advantage), advantage)
