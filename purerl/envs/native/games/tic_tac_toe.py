"""Tic-tac-toe: three marks in a row, between two players that take turns."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.native.games.game import bits, check, game
from purerl.spaces import Discrete
from purerl.types import Array, Env

NAME = "TicTacToe-v0"
CELLS = 9
LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
"""The cells of each line that wins."""
AGENTS = np.arange(2, dtype=np.int32)


class Physical(NamedTuple):
    """The cells that each agent has marked ``[2, 9]`` bool, and whose turn it is, int32: 2 at the end, for no agent."""

    marks: Array
    mover: Array


def tic_tac_toe(*, draw_seats: int = 1) -> Env:
    """Makes TicTacToe-v0: rewards are 1 for the winner and -1 for the other at the last step, else 0.

    Action ``a`` marks cell ``a``, counted in rows from the top left. At each step one agent acts, and what the other
    does is ignored. A mark on a cell that is taken is illegal, and loses at once. The observation ``[19]`` (bool) is
    from each agent's own view: its marks ``[9]``, the other's ``[9]``, and whether it is its turn. An agent that waits
    may take any action. The best play is worth 0; in random play the agent that begins wins 58.5 %, the other 28.8 %.

    Args:
        draw_seats: With 1 each episode draws which agent begins; with 0 it is agent 0.

    Raises:
        ConfigError: If ``draw_seats`` is neither 0 nor 1.
    """
    check(NAME, "draw_seats", draw_seats, draw_seats in (0, 1), "0 or 1")

    def dynamics(now, action):
        moves = now.mover == AGENTS
        mark = jnp.arange(CELLS) == action[now.mover]
        taken = jnp.any(now.marks & mark[None])
        marks = now.marks | (moves[:, None] & mark[None] & ~taken)
        won = jnp.any(jnp.all(marks[:, LINES], axis=-1))
        over = taken | won | jnp.all(jnp.any(marks, axis=0))
        gain = jnp.where(taken, -1.0, jnp.where(won, 1.0, 0.0))
        return Physical(marks, jnp.where(over, 2, 1 - now.mover)), jnp.where(moves, gain, -gain), over

    def observe(now):
        return jnp.concatenate([now.marks, now.marks[::-1], (now.mover == AGENTS)[:, None]], axis=-1)

    return game(
        NAME,
        num_agents=2,
        num_actions=CELLS,
        initial=lambda level: Physical(jnp.zeros((2, CELLS), bool), level * draw_seats),
        dynamics=dynamics,
        observe=observe,
        observation_space=bits(2 * CELLS + 1),
        time_limit=CELLS,
        levels=lambda key, shape: spaces.sample(Discrete(2), key, shape),
        legal=lambda obs: ~(obs[..., :CELLS] | obs[..., CELLS:-1]) | ~obs[..., -1:],
        acting=lambda obs: obs[..., -1],
        zero_sum=True,
    )
