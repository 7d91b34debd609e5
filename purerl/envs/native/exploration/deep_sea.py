"""A grid in which one path of many leads to the treasure, and every step along it costs something."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.envs.episodic import episodic, one_level
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Scalar


class Physical(NamedTuple):
    """Row and column (int32); row 0 is at the top. Row ``depth`` is below the sea."""

    row: Array
    column: Array


def deep_sea(*, depth: int = 10, seed: int = 0, move_cost: Scalar = 0.01) -> Env:
    """Makes DeepSea-v0, of Osband et al. 2020 (arXiv 1908.03568, bsuite), deterministic.

    An episode begins in the upper left corner of a square of ``depth`` rows and sinks by one row a step. One of the two
    actions also leads one column to the right and costs ``move_cost / depth``, the other one leads to the left, as far
    as the border allows; which one it is was drawn for each cell and never changes. To the right from the lower right
    corner pays 1. The best return is ``1 - move_cost``, of the only path that goes right at every step; a uniformly
    random policy finds it once in ``2 ** depth`` episodes. An episode terminates after ``depth`` steps. Observations
    ``[depth, depth]`` (bool) light the cell that the diver is in; below the sea, nothing is lit.

    Args:
        depth: The number of rows, of columns, and of steps of an episode.
        seed: The seed of the map of actions, which for a given depth is gymnax's for ``jax.random.key(seed)``.
        move_cost: The cost of all steps of the best path together.
    """
    if not (isinstance(depth, int) and depth >= 1):
        raise ConfigError(f"env = 'DeepSea-v0': depth = {depth!r}: must be a whole number, at least 1")
    with jax.ensure_compile_time_eval():
        right = np.asarray(jax.random.bernoulli(jax.random.key(seed), 0.5, (depth, depth))).astype(np.int32)

    def dynamics(now, action):
        goes_right = jnp.clip(action, 0, 1) == jnp.asarray(right)[now.row, now.column]
        treasure = goes_right & (now.column == depth - 1)
        column = jnp.clip(now.column + jnp.where(goes_right, 1, -1), 0, depth - 1)
        reward = jnp.where(treasure, 1.0, 0.0) - jnp.where(goes_right, move_cost / depth, 0.0)
        return Physical(now.row + 1, column), reward, now.row + 1 == depth

    def observe(now):
        rows, columns = (jnp.arange(depth) == place for place in now)
        return rows[:, None] & columns[None]

    return episodic(
        "DeepSea-v0",
        levels=one_level,
        initial=lambda level: Physical(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)),
        dynamics=dynamics,
        observe=observe,
        time_limit=depth,
        observation_space=Box(False, True, (depth, depth), jnp.dtype(bool)),
        action_space=Discrete(2),
    )
