"""Two agents that choose at the same time, and are paid by a matrix each: once, or again and again."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.envs.native.games.game import bits, check, game
from purerl.types import Array, Env

NAME = "MatrixGame-v0"
GAMES: dict[str, Any] = {
    "prisoners-dilemma": (((-1, -3), (0, -2)), ((-1, 0), (-3, -2))),
    "matching-pennies": (((1, -1), (-1, 1)), ((-1, 1), (1, -1))),
    "rock-paper-scissors": (((0, -1, 1), (1, 0, -1), (-1, 1, 0)), ((0, 1, -1), (-1, 0, 1), (1, -1, 0))),
    "coordination": (((1, 0), (0, 1)), ((1, 0), (0, 1))),
    "climbing": (((1.1, -3, 0), (-3, 0.7, 0.6), (0, 0, 0.5)), ((1.1, -3, 0), (-3, 0.7, 0.6), (0, 0, 0.5))),
}
"""The pay-offs of the agent that chooses the row, agent 0, and of the one that chooses the column, agent 1."""


class Physical(NamedTuple):
    """The last actions ``[2]``, and the number of rounds played; int32."""

    last: Array
    played: Array


def matrix_game(*, game: str = "prisoners-dilemma", payoffs: Any = None, rounds: int = 1) -> Env:
    """Makes MatrixGame-v0: agent 0 chooses the row, agent 1 the column, and each has a matrix of rewards.

    The observation ``[A * A + 1]`` (bool) is one-hot: the last actions, as number ``own * A + the other's``, and, in
    the first round, the last element. In the prisoner's dilemma these are CC, CD, DC, DD and the beginning.

    Args:
        game: ``prisoners-dilemma`` (0 is to cooperate), ``matching-pennies`` (agent 0 wants them equal),
            ``rock-paper-scissors``, ``coordination``, or ``climbing`` (Claus & Boutilier 1998, a tenth of its
            pay-offs).
        payoffs: The matrices of both agents ``[2, A, A]`` in place of those of ``game``; may be traced.
        rounds: The number of rounds after which the episode terminates.

    Raises:
        ConfigError: If ``game`` does not exist, ``payoffs`` have another shape, or ``rounds`` is below 1.
    """
    check(NAME, "game", game, game in GAMES, f"one of {', '.join(GAMES)}")
    check(NAME, "rounds", rounds, not isinstance(rounds, int | float) or rounds >= 1, "at least 1")
    matrices = jnp.asarray(GAMES[game] if payoffs is None else payoffs, jnp.float32)
    square = matrices.ndim == 3 and matrices.shape == (2, matrices.shape[1], matrices.shape[1])
    check(NAME, "payoffs", f"an array {list(matrices.shape)}", square, "two square matrices of one size [2, A, A]")
    zero_sum = payoffs is None and not np.any(np.sum(GAMES[game], axis=0))
    return _game(matrices, rounds)._replace(zero_sum=zero_sum)


def _game(matrices: Array, rounds: Any) -> Env:
    num_actions = matrices.shape[1]
    beginning = num_actions**2

    def dynamics(now, action):
        following = Physical(action, now.played + 1)
        return following, matrices[:, action[0], action[1]], following.played >= rounds

    def observe(now):
        together = now.last * num_actions + now.last[::-1]
        return jax.nn.one_hot(jnp.where(now.played > 0, together, beginning), beginning + 1, dtype=bool)

    return game(
        NAME,
        num_agents=2,
        num_actions=num_actions,
        initial=lambda level: Physical(jnp.zeros(2, jnp.int32), jnp.zeros((), jnp.int32)),
        dynamics=dynamics,
        observe=observe,
        observation_space=bits(beginning + 1),
        time_limit=rounds,
    )
