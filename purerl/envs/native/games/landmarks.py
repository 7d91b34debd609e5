"""Two agents on a grid that must stand on two landmarks, one on each."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.native.games.game import bits, check, game
from purerl.spaces import Box, MultiDiscrete
from purerl.types import Array, Env

SIZE = 5
"""Rows and columns of the grid. Row 0 is at the top, column 0 at the left."""
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)
"""Rows and columns that an agent moves by, for each action."""


class Physical(NamedTuple):
    """Rows and columns ``[2, 2]`` int32 of the agents and of the landmarks."""

    agents: Array
    landmarks: Array


def landmarks(*, step_cost: float = 0.05, max_steps: int = 12, ways: int = 0) -> Env:
    """Makes Landmarks-v0.

    The team's reward is 1 at each step after which both landmarks are occupied, minus ``step_cost``.

    Actions 0 to 4: stay, up, down, left, right; the border stops a move, and agents may share a cell. Which agent
    stands on which landmark does not matter. Agents begin anywhere, landmarks lie in two different cells. Random play
    is worth ``(2 / 625 - 0.05) * 12 = -0.56`` an episode, and the best 8.99.

    Observations are ``{"own", "state"}``, of ``[40]`` bools each: rows and columns, one-hot, of the agent, the other
    agent and both landmarks; and of agent 0, agent 1 and both landmarks. ``own`` is all that an agent needs to see. A
    network must learn for each cell anew when two of them are the same. So ways may be observed instead, float32, in
    steps of two cells: ``own`` ``[12]`` is the agent's place from the middle, the ways from it to the other agent and
    to both landmarks, and those of the other agent to both; ``state`` ``[8]`` has all places from the middle.

    Args:
        step_cost: What each step costs.
        max_steps: Steps after which an episode is truncated; it never terminates.
        ways: With 1 ways are observed instead of cells.

    Raises:
        ConfigError: If ``ways`` is neither 0 nor 1.
    """
    check("Landmarks-v0", "ways", ways, ways in (0, 1), "0 or 1")
    cells = SIZE**2
    beginnings = MultiDiscrete((cells, cells, cells, cells - 1))

    def initial(level):
        at = jnp.stack([level[0], level[1], level[2], (level[2] + 1 + level[3]) % cells])
        places = jnp.stack([at // SIZE, at % SIZE], axis=-1)
        return Physical(places[:2], places[2:])

    def dynamics(now, action):
        agents = jnp.clip(now.agents + jnp.asarray(MOVES)[action], 0, SIZE - 1)
        meet = jnp.all(agents[:, None] == now.landmarks[None], axis=-1)
        occupied = jnp.all(jnp.any(meet, axis=0))
        return now._replace(agents=agents), jnp.where(occupied, 1.0, 0.0) - step_cost, False

    def as_ways(now):
        places = jnp.concatenate(now) / 2  # [4, 2]
        agents, marks = places[:2], places[2:]
        to_marks = (marks[None] - agents[:, None]).reshape(2, -1)
        own = jnp.concatenate([agents - 1, agents[::-1] - agents, to_marks, to_marks[::-1]], axis=-1)
        return {"own": own, "state": jnp.stack([(places - 1).reshape(-1)] * 2)}

    def as_cells(now):
        agents, marks = (jax.nn.one_hot(places, SIZE, dtype=bool).reshape(2, -1) for places in now)
        marks = jnp.stack([marks.reshape(-1)] * 2)
        everything = jnp.stack([agents.reshape(-1)] * 2)
        return {
            "own": jnp.concatenate([agents, agents[::-1], marks], axis=-1),
            "state": jnp.concatenate([everything, marks], axis=-1),
        }

    space = {"own": bits(8 * SIZE), "state": bits(8 * SIZE)}
    if ways:
        space = {part: Box(-2, 2, (size,), jnp.float32) for part, size in (("own", 12), ("state", 8))}
    return game(
        "Landmarks-v0",
        num_agents=2,
        num_actions=len(MOVES),
        initial=initial,
        dynamics=dynamics,
        observe=as_ways if ways else as_cells,
        observation_space=space,
        time_limit=max_steps,
        levels=lambda key, shape: spaces.sample(beginnings, key, shape),
        own=lambda obs: obs["own"],
        state=lambda obs: obs["state"],
    )
