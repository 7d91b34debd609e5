"""Returns and advantages over one trajectory: ``[T]`` in, ``[T]`` out. Callers vmap over environments.

Every estimate here is a linear recurrence that runs backwards in time. Common arguments:

- ``reward`` ``[T]``, ``discount`` ``[T]``: ``gamma * (1 - terminated)``.
- ``value[t]`` is V(obs[t]); ``next_value[t]`` is V(next_obs[t]), the true next observation, so that a truncated step
  bootstraps from where it was cut.
- ``last[t]``: the episode ended here, either way; nothing flows across it. The end of the trajectory cuts likewise,
  bootstrapping from ``next_value[T - 1]``.
"""

import chex
import jax
import jax.numpy as jnp

from purerl.types import Array


def _accumulate(increment: Array, weight: Array) -> Array:
    """``x[t] = increment[t] + weight[t] * x[t + 1]``, with ``x[T] = 0``. ``[T]``."""

    def back(following, step):
        total = step[0] + step[1] * following
        return total, total

    _, totals = jax.lax.scan(back, jnp.zeros_like(increment[0]), (increment, weight), reverse=True, unroll=8)
    return totals


def _next(x: Array) -> Array:
    """``x[t + 1]``, and zero after the end. ``[T]``."""
    return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])


def gae(reward: Array, value: Array, next_value: Array, discount: Array, last: Array, gae_lambda: Array) -> Array:
    """Generalised advantage estimates ``[T]`` (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    ``A[t] = delta[t] + discount[t] * lambda * A[t+1]`` within an episode, with
    ``delta[t] = reward[t] + discount[t] * next_value[t] - value[t]`` (eq. 9).
    """
    chex.assert_rank([reward, value, next_value, discount, last], 1)
    delta = reward + discount * next_value - value
    return _accumulate(delta, discount * gae_lambda * (1 - last))


def lambda_returns(reward: Array, next_value: Array, discount: Array, last: Array, trace_lambda: Array) -> Array:
    """Lambda returns ``[T]`` (Sutton & Barto 2018, eq. 12.18, in recursive form).

    ``G[t] = reward[t] + discount[t] * ((1 - lambda) * next_value[t] + lambda * G[t+1])`` within an episode;
    ``reward[t] + discount[t] * next_value[t]`` where it ends.
    """
    chex.assert_rank([reward, next_value, discount, last], 1)
    trace = trace_lambda * (1 - last.at[-1].set(True))
    return _accumulate(reward + discount * (1 - trace) * next_value, discount * trace)


def n_step(reward: Array, next_value: Array, discount: Array, last: Array, n: int) -> Array:
    """Returns over at most ``n`` steps, then a bootstrap ``[T]`` (Sutton & Barto 2018, eq. 7.1).

    Fewer steps where the episode or the trajectory ends sooner.
    """
    chex.assert_rank([reward, next_value, discount, last], 1)
    last = last.at[-1].set(True)
    one_step = reward + discount * next_value
    total = one_step
    for _ in range(n - 1):
        total = jnp.where(last, one_step, reward + discount * _next(total))
    return total


def stored_n_step(reward: Array, value: Array, discount: Array, truncated: Array, n: int) -> Array:
    """Returns over at most ``n`` steps from rows of a replay buffer, then a bootstrap ``[T]``.

    The buffer never stored the true next observation of a truncated step, so ``value[t]`` is all there is: the value
    of obs[t] itself, by which the step before bootstraps. A return stops before a truncated step and at the end, with
    the value there. What stands at a step that is itself truncated, and in the last row, is just ``value``.

    ``x_n`` of the recursion ``x_0 = value``; ``x_k[t] = value[t]`` where ``truncated[t]`` or ``t = T - 1``, else
    ``reward[t] + discount[t] * x_(k-1)[t+1]`` (Sutton & Barto 2018, eq. 7.1, within these limits).
    """
    chex.assert_rank([reward, value, discount, truncated], 1)
    stop = truncated.at[-1].set(True)
    total = value
    for _ in range(n):
        total = jnp.where(stop, value, reward + discount * _next(total))
    return total


def vtrace(
    log_ratio: Array,
    reward: Array,
    value: Array,
    next_value: Array,
    discount: Array,
    last: Array,
    trace_lambda: Array = 1.0,
    rho_bar: Array = 1.0,
    c_bar: Array = 1.0,
) -> tuple[Array, Array]:
    """V-trace advantages and targets, both ``[T]`` (Espeholt et al. 2018, arXiv 1802.01561, eq. 1 and section 4.2).

    ``log_ratio[t] = log pi(action[t]) - log mu(action[t])``. With ``rho = min(rho_bar, ratio)`` and
    ``c = lambda * min(c_bar, ratio)``, the target is ``v[t] = value[t] + e[t]``, where
    ``e[t] = rho[t] * delta[t] + discount[t] * c[t] * e[t+1]`` within an episode; the advantage is
    ``rho[t] * (reward[t] + discount[t] * v[t+1] - value[t])``. On policy with lambda 1 both are Monte Carlo.
    """
    rho, c = vtrace_weights(log_ratio, trace_lambda, rho_bar, c_bar)
    return weighted_returns(rho, c, reward, value, next_value, discount, last)


def vtrace_weights(log_ratio: Array, trace_lambda: Array, rho_bar: Array, c_bar: Array) -> tuple[Array, Array]:
    """V-trace's ``rho`` and ``c``, elementwise (arXiv 1802.01561, eq. 1)."""
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(rho_bar, ratio), trace_lambda * jnp.minimum(c_bar, ratio)


def weighted_returns(
    rho: Array, c: Array, reward: Array, value: Array, next_value: Array, discount: Array, last: Array
) -> tuple[Array, Array]:
    """Advantages and targets, both ``[T]``, as in `vtrace`, for any weights: ``rho[t]`` of a step's own error, and
    ``c[t]`` with which it passes later errors on."""
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
    trace_lambda: Array = 1.0,
) -> Array:
    """Retrace targets for ``Q(obs[t], action[t])`` ``[T]`` (Munos et al. 2016, arXiv 1606.02647, eq. 3 and 4).

    ``q_value[t]`` is Q(obs[t], action[t]), ``next_value[t]`` is E_pi Q(next_obs[t], .). With
    ``c = lambda * min(1, ratio)``, the error ``G - q_value`` obeys
    ``x[t] = reward[t] + discount[t] * next_value[t] - q_value[t] + discount[t] * c[t+1] * x[t+1]`` within an episode.
    """
    chex.assert_rank([log_ratio, reward, q_value, next_value, discount, last], 1)
    c = trace_lambda * jnp.minimum(1.0, jnp.exp(log_ratio))
    delta = reward + discount * next_value - q_value
    return q_value + _accumulate(delta, discount * _next(c) * (1 - last))
