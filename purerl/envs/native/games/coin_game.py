"""The coin game with two coins at once: taking the other's coin pays, and costs the other more.

Source: Lerer & Peysakhovich 2017, arXiv 1707.01068; with both coins on the grid at all times in the code of M-FOS,
arXiv 2205.01447.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.native.games.game import bits, game
from purerl.spaces import MultiDiscrete
from purerl.types import Array, Env

SIZE = 3
"""Rows and columns of the grid, whose borders are joined."""
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)
"""Rows and columns that an agent moves by, for each action."""
CELLS = SIZE**2


class Physical(NamedTuple):
    """Cells ``[2]`` of the agents and of their coins, by number, row by row; int32."""

    agents: Array
    coins: Array


def coin_game(*, stolen: float = 2.0, max_steps: int = 16) -> Env:
    """Makes CoinGame-v0.

    An agent gets 1 for each coin that it steps onto, and loses ``stolen`` for each of its own coins that the other
    steps onto.

    Actions 0 to 3: up, down, left, right, on a 3x3 grid without borders. Each agent has a coin; both are on the grid at
    all times. When both agents step onto a coin both take it. A taken coin lies in any cell the next moment, drawn
    anew, also in one that is occupied. All begin anywhere.

    The observation ``[36]`` (bool) has the cells, one-hot, of the agent, the other, the agent's coin and the other's.

    Args:
        stolen: What an agent loses when the other takes its coin.
        max_steps: Steps after which an episode is truncated; it never terminates.
    """

    def dynamics(now, action, anew):
        agents = moved(now.agents, action)
        takes = agents[:, None] == now.coins[None]  # [agent, coin]
        paid = takes.astype(jnp.float32)
        reward = jnp.sum(paid, axis=1) - stolen * jnp.diagonal(paid[::-1])  # row: the other player; column: own coin
        return Physical(agents, jnp.where(jnp.any(takes, axis=0), anew, now.coins)), reward, False

    def observe(now: Physical) -> Array:
        agents, coins = jax.nn.one_hot(jnp.stack(now), CELLS, dtype=bool)  # [2, 9] each
        return jnp.concatenate([agents, agents[::-1], coins, coins[::-1]], axis=-1)

    return game(
        "CoinGame-v0",
        num_agents=2,
        num_actions=len(MOVES),
        initial=lambda cells: Physical(cells[:2], cells[2:]),
        dynamics=dynamics,
        observe=observe,
        observation_space=bits(4 * CELLS),
        time_limit=max_steps,
        levels=lambda key, shape: spaces.sample(MultiDiscrete((CELLS,) * 4), key, shape),
        noise=lambda key, shape: spaces.sample(MultiDiscrete((CELLS,) * 2), key, shape),
    )


def moved(cells: Array, action: Array) -> Array:
    """Returns the cells after a move of each, on the grid whose borders are joined."""
    places = jnp.stack([cells // SIZE, cells % SIZE], axis=-1) + jnp.asarray(MOVES)[action]
    row, column = jnp.moveaxis(places % SIZE, -1, 0)
    return row * SIZE + column
