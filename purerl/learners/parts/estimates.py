"""Advantages and targets of a trajectory, one environment at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

from purerl import config as cfg
from purerl.formulas import returns
from purerl.types import Array, Scalar


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


@cfg.config
class VtraceSettings:
    """Settings of V-trace."""

    trace_lambda: cfg.Fraction = 1.0
    """Trace parameter (lambda) of V-trace's targets."""
    rho_bar: cfg.Positive = 1.0
    """V-trace's rho-bar: upper clip of the importance weight of a step's own TD error."""
    c_bar: cfg.Positive = 1.0
    """V-trace's c-bar: upper clip of the trace weight, which propagates later TD errors back."""


def vtrace_weights(log_ratio: Array, config: VtraceSettings) -> tuple[Array, Array]:
    """Computes V-trace's weights (`returns.vtrace_weights`).

    Args:
        log_ratio: Log-probability under the policy that learns less that under the policy that acted.
        config: Settings.
    """
    return returns.vtrace_weights(log_ratio, config.trace_lambda, config.rho_bar, config.c_bar)


def by_weights(weights: Callable[[Array, Any], tuple[Array, Array]], config: VtraceSettings) -> Estimate:
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


def first_of(value: Array, advantage: Array) -> Array:
    """Returns values, or the first of predictions, which have one axis more than advantages."""
    return value[..., 0] if value.ndim > advantage.ndim else value
