"""A corridor in which one wrong step ends the episode, and a cue on the way counts at its end."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.episodic import episodic
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env


class Physical(NamedTuple):
    """The cell, from 0 on (int32), and the cue of this episode, 0 or 1 (int32)."""

    cell: Array
    cue: Array


def cue_corridor(*, length: int = 16, cue_cell: int = 11, seed: int = 0) -> Env:
    """Makes CueCorridor-v0: cells 1 to ``length``, two actions, and at most one reward, of 1, at the end.

    In every cell but the last one action, which was drawn for that cell and never changes, leads on to the next cell,
    and the other one terminates the episode. In the last cell the action that equals the cue of the episode is worth 1,
    and the episode terminates. So uniformly random play is paid once in ``2 ** length`` episodes, and a policy that
    knows the way but not the cue in every second one.

    Observations ``[length + 1]`` (float32) are the cell, one-hot, and the cue: 1 or -1 in cell ``cue_cell``, and 0
    everywhere else.

    Args:
        length: The number of cells, and the most steps of an episode.
        cue_cell: The cell in which the cue is seen, from 1 to ``length``.
        seed: The seed from which the actions that lead on are drawn.
    """
    for name, value, most in (("length", length, 2**16), ("cue_cell", cue_cell, length)):
        if not (isinstance(value, int) and 1 <= value <= most):
            raise ConfigError(f"env = 'CueCorridor-v0': {name} = {value!r}: must be a whole number in [1, {most}]")
    way = onward(length, seed)

    def dynamics(now, action):
        at_end = now.cell == length - 1
        right = jnp.clip(action, 0, 1) == jnp.where(at_end, now.cue, jnp.asarray(way)[now.cell])
        return now._replace(cell=jnp.minimum(now.cell + 1, length - 1)), right & at_end, at_end | ~right

    def observe(now):
        shown = jnp.where(now.cell == cue_cell - 1, 2.0 * now.cue - 1.0, 0.0)
        return jnp.concatenate([jnp.arange(length) == now.cell, shown[None]])

    env = episodic(
        "CueCorridor-v0",
        levels=draw.uniform,
        initial=lambda level: Physical(jnp.zeros((), jnp.int32), (level < 0.5).astype(jnp.int32)),
        dynamics=dynamics,
        observe=observe,
        time_limit=length,
        observation_space=Box(-1.0, 1.0, (length + 1,), jnp.float32),
        action_space=Discrete(2),
    )
    return env._replace(partly_observed=True)


def onward(length: int, seed: int = 0) -> np.ndarray:
    """Returns the action that leads on from each cell ``[length]``; that of the last cell has no meaning."""
    return np.random.RandomState(seed).randint(2, size=length).astype(np.int32)
