"""A grid without rewards, beside a screen of noise that never repeats."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.episodic import episodic
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)
"""Rows and columns that the actions up, down, left and right move by."""


class Physical(NamedTuple):
    """Row and column ``[2]`` int32, and the numbers on the screen ``[channels]``."""

    place: Array
    screen: Array


def noisy_grid(*, size: int = 9, channels: int = 8, max_steps: Any = 40) -> Env:
    """Makes NoisyGrid-v0: nothing is paid, and an agent that seeks what is new must not watch the screen.

    An episode begins in the upper left corner of ``size`` rows and columns. Actions 0 to 3 lead up, down, left, right;
    the border stops a move. An episode never terminates. Observations ``[2 * size + channels]`` are the row and the
    column, one-hot, and the screen: uniform in [0, 1), drawn anew at every step, so that no two observations are alike.
    It is the "noisy TV" of Burda et al. 2018 (arXiv 1810.12894), section 2.2, in a grid.

    Args:
        size: The number of rows and of columns.
        channels: How many numbers the screen shows.
        max_steps: Steps after which an episode is truncated.
    """
    for name, value in {"size": size, "channels": channels}.items():
        if not (isinstance(value, int) and value >= 1):
            raise ConfigError(f"env = 'NoisyGrid-v0': {name} = {value!r}: must be a whole number, at least 1")

    def screen(key: Key, shape: tuple[int, ...]) -> Array:
        return draw.uniform(key, (*shape, channels))

    def dynamics(now, action, shown):
        move = jnp.asarray(MOVES)[jnp.clip(action, 0, len(MOVES) - 1)]
        return Physical(jnp.clip(now.place + move, 0, size - 1), shown), 0.0, False

    def observe(now: Physical) -> Array:
        return jnp.concatenate([jax.nn.one_hot(now.place, size).reshape(-1), now.screen])

    return episodic(
        "NoisyGrid-v0",
        levels=screen,
        initial=lambda shown: Physical(jnp.zeros(2, jnp.int32), shown),
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps,
        observation_space=Box(0.0, 1.0, (2 * size + channels,), jnp.float32),
        action_space=Discrete(len(MOVES)),
        noise=screen,
    )
