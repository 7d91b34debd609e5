"""A grid without rewards, beside a screen of noise that never repeats."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.episodic import EpisodeState
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, Step

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)
"""Of the actions up, down, left, right: rows and columns that they lead on."""


class Physical(NamedTuple):
    """Row and column ``[2]`` int32, and what the screen shows ``[channels]``."""

    place: Array
    screen: Array


def noisy_grid(*, size: int = 9, channels: int = 8, max_steps: Any = 40) -> Env:
    """NoisyGrid-v0: nothing is paid, and an agent that seeks what is new must not watch the screen.

    An episode begins in the upper left corner of ``size`` rows and columns. Actions 0 to 3 lead up, down, left, right;
    the border stops a move. An episode never terminates. Observations ``[2 * size + channels]`` are the row and the
    column, one-hot, and the screen: uniform in [0, 1), drawn anew at every step, so that no two observations are alike.
    It is the "noisy TV" of Burda et al. 2018 (arXiv 1810.12894), section 2.2, in a grid.

    - ``size``: rows and columns.
    - ``channels``: numbers on the screen.
    - ``max_steps``: steps after which an episode is truncated.
    """
    for name, value in {"size": size, "channels": channels}.items():
        if not (isinstance(value, int) and value >= 1):
            raise ConfigError(f"env = 'NoisyGrid-v0': {name} = {value!r}: must be a whole number, at least 1")

    def noise(key: Key, shape: tuple[int, ...]) -> Array:
        return draw.uniform(key, (*shape, 2, channels))

    def start(screen: Array) -> Physical:
        return Physical(jnp.zeros(2, jnp.int32), screen)

    def observe(now: Physical) -> Array:
        return jnp.concatenate([jax.nn.one_hot(now.place, size).reshape(-1), now.screen])

    def reset(key: Key) -> tuple[EpisodeState, Array]:
        physical = start(noise(key, ())[0])
        return EpisodeState(physical, jnp.zeros((), jnp.int32)), observe(physical)

    def step(noise: Array, env_state: EpisodeState, action: Array) -> tuple[EpisodeState, Step]:
        move = jnp.asarray(MOVES)[jnp.clip(action, 0, len(MOVES) - 1)]
        after = Physical(jnp.clip(env_state.physical.place + move, 0, size - 1), noise[0])
        t = env_state.t + 1
        last = t >= max_steps
        following = jax.tree.map(lambda new, old: jnp.where(last, new, old), start(noise[1]), after)
        made = Step(observe(following), observe(after), jnp.zeros(()), jnp.zeros((), bool), last)
        return EpisodeState(following, jnp.where(last, 0, t)), made

    space = Box(0.0, 1.0, (2 * size + channels,), jnp.float32)
    return Env("NoisyGrid-v0", reset, noise, step, space, Discrete(len(MOVES)))
