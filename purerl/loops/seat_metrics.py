"""What is told of each agent of an environment beside means over all: the returns by seat, and who won."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import exact
from purerl.exact import Sum
from purerl.formulas.outcomes import outcomes
from purerl.types import Array, Env, Metrics, Transition

FEW = 8
"""The largest number of agents of which each has metrics of its own. Of more, the least and the largest are told."""
LEAST_AND_LARGEST = "least", "largest"
"""The names in place of the numbers of seats, of more than `FEW` agents."""
UNROLL = 8
"""The number of steps per iteration of the compiled loop over the rewards of games, which costs a kernel each on a
GPU."""


class Seats(NamedTuple):
    """Sums over the games that ended: of the returns of each agent ``[N]``, and how many were won by each and drawn.

    ``won`` int32 ``[N]`` and ``drawn`` int32 ``[]`` are ``()`` where nobody wins: in all but zero-sum environments.
    """

    returns: Sum
    won: Array | tuple[()] = ()
    drawn: Array | tuple[()] = ()


def seat_sums(env: Env, before: Sum, ended: Sum, trajectory: Transition) -> Seats:
    """Computes the sums over the games of ``env``, of several agents, that ended in a trajectory.

    Args:
        env: The environment, whose agents' rows lie side by side.
        before: Returns of the games that are running at the start ``[B]``.
        ended: The sum of the returns of the games that ended in each row ``[B]``.
        trajectory: ``[T, B]``.
    """
    by_copy = lambda x: x.reshape(*x.shape[:-1], -1, env.num_agents)
    returns = exact.total(Sum(*map(by_copy, ended)))
    if not env.zero_sum:
        return Seats(returns)

    def step(running: Sum, row: tuple[Array, Array]) -> tuple[Sum, tuple[Array, Array]]:
        reward, over = row
        running = exact.plus(running, exact.of(reward))
        result = outcomes(exact.value(running))
        won = jnp.sum(over & (result == 1), axis=0, dtype=jnp.int32)
        drawn = jnp.sum(jnp.any(over & (result == 0), axis=1), dtype=jnp.int32)
        return exact.where(~over, running), (won, drawn)

    rows = by_copy(trajectory.reward), by_copy(trajectory.game_over)
    _, (won, drawn) = jax.lax.scan(step, Sum(*map(by_copy, before)), rows, unroll=UNROLL)
    return Seats(returns, jnp.sum(won, axis=0), jnp.sum(drawn))


def seat_metrics(seats: Seats, games: Array) -> Metrics:
    """Computes the means over ``games`` (float32) that ended, of their sums; nan if none did.

    They are ``episode_return/SEAT`` and, of a zero-sum environment, the share ``won/SEAT`` that each agent won and the
    share ``drawn`` in which several share the highest return. All these shares add up to 1. ``SEAT`` is a number from 0
    on, or, of more than `FEW` agents, ``least`` and ``largest``.
    """
    mean = lambda total: jnp.where(games > 0, total / jnp.maximum(games, 1), jnp.nan)
    metrics = by_seat("episode_return", mean(exact.value(seats.returns)))
    if isinstance(seats.won, tuple):
        return metrics
    return metrics | by_seat("won", mean(seats.won)) | {"drawn": mean(seats.drawn)}


def by_seat(name: str, values: Array) -> Metrics:
    """Names the values of each agent ``[N]``, or the least and the largest of more than `FEW`."""
    shown = jnp.stack([jnp.min(values), jnp.max(values)]) if len(values) > FEW else values
    return {f"{name}/{seat}": value for seat, value in zip(labels(len(values)), shown, strict=True)}


def first_share(env: Env | None) -> str | None:
    """Returns the name of the share of games that the first seat wins; None where `seat_metrics` has none."""
    return "won/0" if env and env.zero_sum and env.num_agents <= FEW else None


def labels(num_agents: int) -> list[str]:
    """Returns the names of the seats by which ``num_agents`` agents are told."""
    return list(LEAST_AND_LARGEST) if num_agents > FEW else [str(seat) for seat in range(num_agents)]
