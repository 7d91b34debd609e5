"""Returns and advantages over one trajectory: ``[T]`` in, ``[T]`` out. Callers vmap over environments.

Every estimate here is a linear recurrence that runs backwards in time. Shared arguments, all ``[T]``:

- ``reward[t]``: the reward of step ``t``.
- ``discount[t]``: ``gamma * (1 - terminated[t])``.
- ``value[t]``: V(obs[t]).
- ``next_value[t]``: V(next_obs[t]), where ``next_obs`` is the true next observation before any reset, so that a
  truncated step bootstraps from the state in which it was truncated.
- ``last[t]``: whether the episode ended at this step, by termination or truncation. The recurrence is cut there. It is
  also cut at the end of the trajectory, where it bootstraps from ``next_value[T - 1]``.
- ``log_ratio[t]``: log pi(action[t]) - log mu(action[t]), of the current policy pi and the behaviour policy mu.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from purerl.types import Array, Scalar

__all__ = [
    "Columns",
    "Estimate",
    "by_gae",
    "gae",
    "lambda_returns",
    "n_step",
    "retrace",
    "stored_n_step",
    "stored_retrace",
    "vtrace",
    "vtrace_weights",
    "weighted_returns",
]


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


def _accumulate(increment: Array, weight: Array) -> Array:
    """Computes ``x[t] = increment[t] + weight[t] * x[t + 1]``, with ``x[T] = 0``. ``[T]``."""

    def back(following: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        total = step[0] + step[1] * following
        return total, total

    with jax.named_scope("returns"):
        return jax.lax.scan(back, jnp.zeros_like(increment[0]), (increment, weight), reverse=True, unroll=8)[1]


def _next(x: Array) -> Array:
    """Shifts ``x`` by one step: ``x[t + 1]``, and zero at ``T - 1``. ``[T]``."""
    return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])


def gae(reward: Array, value: Array, next_value: Array, discount: Array, last: Array, gae_lambda: Scalar) -> Array:
    """Computes generalised advantage estimates ``[T]`` (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    ``A[t] = delta[t] + discount[t] * lambda * A[t+1]`` within an episode, with
    ``delta[t] = reward[t] + discount[t] * next_value[t] - value[t]`` (eq. 9).

    Args:
        reward: ``[T]``; see the module docstring for all arrays.
        value: ``[T]``.
        next_value: ``[T]``.
        discount: ``[T]``.
        last: ``[T]``.
        gae_lambda: A scalar in [0, 1].
    """
    chex.assert_rank([reward, value, next_value, discount, last], 1)
    delta = reward + discount * next_value - value
    return _accumulate(delta, discount * gae_lambda * (1 - last))


def by_gae(gae_lambda: Scalar) -> Estimate:
    """Makes the estimate of generalised advantages and their lambda returns (`gae`).

    It does not correct for the difference to the policy that acted.
    """

    def estimate(columns: Columns) -> tuple[Array, Array]:
        advantage = gae(columns.reward, columns.value, columns.next_value, columns.discount, columns.last, gae_lambda)
        return advantage, advantage + columns.value

    return estimate


def lambda_returns(reward: Array, next_value: Array, discount: Array, last: Array, trace_lambda: Scalar) -> Array:
    """Computes lambda returns ``[T]`` (Sutton & Barto 2018, eq. 12.18, in recursive form).

    ``G[t] = reward[t] + discount[t] * ((1 - lambda) * next_value[t] + lambda * G[t+1])`` within an episode;
    ``G[t] = reward[t] + discount[t] * next_value[t]`` at its last step.

    Args:
        reward: ``[T]``; see the module docstring for all arrays.
        next_value: ``[T]``.
        discount: ``[T]``.
        last: ``[T]``.
        trace_lambda: A scalar in [0, 1].
    """
    chex.assert_rank([reward, next_value, discount, last], 1)
    trace = trace_lambda * (1 - last.at[-1].set(True))
    return _accumulate(reward + discount * (1 - trace) * next_value, discount * trace)


def n_step(reward: Array, next_value: Array, discount: Array, last: Array, n: int) -> Array:
    """Computes bootstrapped n-step returns ``[T]`` (Sutton & Barto 2018, eq. 7.1).

    A return covers fewer than ``n`` steps where the episode or the trajectory ends sooner.

    Args:
        reward: ``[T]``; see the module docstring for all arrays.
        next_value: ``[T]``.
        discount: ``[T]``.
        last: ``[T]``.
        n: The number of steps, at least 1.
    """
    chex.assert_rank([reward, next_value, discount, last], 1)
    last = last.at[-1].set(True)
    one_step = reward + discount * next_value
    total = one_step
    for _ in range(n - 1):
        total = jnp.where(last, one_step, reward + discount * _next(total))
    return total


def stored_n_step(reward: Array, value: Array, discount: Array, stop: Array, stopped: Array, n: int) -> Array:
    """Computes bootstrapped n-step returns ``[T]`` of a sequence from a replay buffer, whose next row is the next step.

    The next row is not what followed where an episode was truncated, and there is none after the last row. ``stop``
    marks such steps, and ``stopped`` is their return. A return bootstraps from ``value`` where its ``n`` steps end.

    The result is ``x_n`` of the recursion ``x_0 = value``; ``x_k[t] = stopped[t]`` where ``stop[t]``, else
    ``reward[t] + discount[t] * x_(k-1)[t+1]`` (Sutton & Barto 2018, eq. 7.1, within these limits). If ``stopped`` is
    the value itself, a return stops before such a step; if it is ``reward + discount * V(next_obs)``, after it.

    Args:
        reward: ``[T]``; see the module docstring.
        value: ``[T]``; see the module docstring.
        discount: ``[T]``; see the module docstring.
        stop: ``[T]`` bool; the last row stops in any case.
        stopped: ``[T]``.
        n: The number of steps, at least 1.
    """
    chex.assert_rank([reward, value, discount, stop, stopped], 1)
    stop = stop.at[-1].set(True)
    total = value
    for _ in range(n):
        total = jnp.where(stop, stopped, reward + discount * _next(total))
    return total


def vtrace(
    log_ratio: Array,
    reward: Array,
    value: Array,
    next_value: Array,
    discount: Array,
    last: Array,
    trace_lambda: Scalar = 1.0,
    rho_bar: Scalar = 1.0,
    c_bar: Scalar = 1.0,
) -> tuple[Array, Array]:
    """Computes V-trace advantages and targets, both ``[T]`` (Espeholt et al. 2018, arXiv 1802.01561, eq. 1).

    With ``ratio = exp(log_ratio)``, ``rho = min(rho_bar, ratio)`` and ``c = lambda * min(c_bar, ratio)``, the target is
    ``v[t] = value[t] + e[t]``, where ``e[t] = rho[t] * delta[t] + discount[t] * c[t] * e[t+1]`` within an episode and
    ``delta[t] = reward[t] + discount[t] * next_value[t] - value[t]``. The advantage is
    ``rho[t] * (reward[t] + discount[t] * v[t+1] - value[t])`` (section 4.2). On policy with lambda 1 targets are Monte
    Carlo returns.

    Args:
        log_ratio: ``[T]``; see the module docstring for all arrays.
        reward: ``[T]``.
        value: ``[T]``.
        next_value: ``[T]``.
        discount: ``[T]``.
        last: ``[T]``.
        trace_lambda: A scalar in [0, 1], the decay of the trace.
        rho_bar: V-trace's rho-bar, the upper clip of the weight of a step's TD error.
        c_bar: V-trace's c-bar, the upper clip of the trace weight.
    """
    rho, c = vtrace_weights(log_ratio, trace_lambda, rho_bar, c_bar)
    return weighted_returns(rho, c, reward, value, next_value, discount, last)


def vtrace_weights(log_ratio: Array, trace_lambda: Scalar, rho_bar: Scalar, c_bar: Scalar) -> tuple[Array, Array]:
    """Computes V-trace's weights ``rho = min(rho_bar, ratio)`` and ``c = trace_lambda * min(c_bar, ratio)``.

    Elementwise. Espeholt et al. 2018 (arXiv 1802.01561, eq. 1), with ``ratio = exp(log_ratio)``.
    """
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(rho_bar, ratio), trace_lambda * jnp.minimum(c_bar, ratio)


def weighted_returns(
    rho: Array, c: Array, reward: Array, value: Array, next_value: Array, discount: Array, last: Array
) -> tuple[Array, Array]:
    """Computes advantages and targets, both ``[T]``, as `vtrace` does, but from given weights.

    Args:
        rho: ``[T]``, the weight of each step's TD error.
        c: ``[T]``, the trace weight: the factor on the accumulated errors of later steps.
        reward: ``[T]``; see the module docstring for this and the following.
        value: ``[T]``.
        next_value: ``[T]``.
        discount: ``[T]``.
        last: ``[T]``.
    """
    chex.assert_rank([rho, c, reward, value, next_value, discount, last], 1)
    delta = reward + discount * next_value - value
    error = _accumulate(rho * delta, discount * c * (1 - last))
    return rho * (delta + discount * (1 - last) * _next(error)), value + error


def retrace(
    log_ratio: Array,
    reward: Array,
    q_value: Array,
    next_value: Array,
    discount: Array,
    last: Array,
    trace_lambda: Scalar = 1.0,
) -> Array:
    """Computes Retrace targets for ``Q(obs[t], action[t])`` ``[T]`` (Munos et al. 2016, arXiv 1606.02647, eq. 3 and 4).

    With ``c = lambda * min(1, exp(log_ratio))`` the target is ``q_value[t] + x[t]``, where
    ``x[t] = reward[t] + discount[t] * next_value[t] - q_value[t] + discount[t] * c[t+1] * x[t+1]`` within an episode.

    Args:
        log_ratio: ``[T]``; see the module docstring.
        reward: ``[T]``; see the module docstring.
        q_value: ``[T]``, Q(obs[t], action[t]).
        next_value: ``[T]``, the expectation of Q(next_obs[t], .) under the current policy.
        discount: ``[T]``; see the module docstring.
        last: ``[T]``; see the module docstring.
        trace_lambda: A scalar in [0, 1], the decay of the trace.
    """
    chex.assert_rank([log_ratio, reward, q_value, next_value, discount, last], 1)
    c = trace_lambda * jnp.minimum(1.0, jnp.exp(log_ratio))
    delta = reward + discount * next_value - q_value
    return q_value + _accumulate(delta, discount * _next(c) * (1 - last))


def stored_retrace(
    trace: Array, reward: Array, q_value: Array, value: Array, discount: Array, stop: Array, stopped: Array
) -> Array:
    """Computes Retrace targets for ``Q(obs[t], action[t])`` ``[T]`` of a sequence from a replay buffer.

    Munos et al. 2016, arXiv 1606.02647, eq. 3. The next row is the next step, as in `stored_n_step`. The target is
    ``q_value[t] + x[t]``, where
    ``x[t] = reward[t] + discount[t] * value[t+1] - q_value[t] + discount[t] * trace[t+1] * x[t+1]``, and
    ``x[t] = stopped[t] - q_value[t]`` where ``stop[t]``. Where ``stopped`` is ``q_value``, earlier targets bootstrap
    there.

    Args:
        trace: ``[T]``, ``lambda * min(1, pi(action) / mu(action))`` of the target policy pi and the behaviour mu.
        reward: ``[T]``; see the module docstring.
        q_value: ``[T]``, Q(obs[t], action[t]).
        value: ``[T]``, the expectation of Q(obs[t], .) under pi.
        discount: ``[T]``; see the module docstring.
        stop: ``[T]`` bool; the last row stops in any case.
        stopped: ``[T]``.
    """
    chex.assert_rank([trace, reward, q_value, value, discount, stop, stopped], 1)
    stop = stop.at[-1].set(True)
    error = jnp.where(stop, stopped, reward + discount * _next(value)) - q_value
    return q_value + _accumulate(error, jnp.where(stop, 0.0, discount * _next(trace)))
