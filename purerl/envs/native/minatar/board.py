"""What the games of MinAtar share: a board of 10 rows and 10 columns, drawn from bits."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import trees
from purerl.envs.episodic import EpisodeState
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, PyTree, Step

SIZE = 10
"""Rows and columns of the board. Row 0 is at the top, column 0 at the left."""
INDEX = np.arange(SIZE, dtype=np.int32)
"""The numbers of the rows, or of the columns."""
LANES = INDEX[1:-1]
"""The rows in which things cross the board: all but the first and the last."""


def game(
    name: str,
    *,
    num_actions: int,
    num_channels: int,
    noise: Callable[[Key, tuple[int, ...]], PyTree],
    initial: Callable[[PyTree], PyTree],
    dynamics: Callable[[PyTree, Array, PyTree], tuple[PyTree, Array, Array]],
    observe: Callable[[PyTree], Array],
    time_limit: Any,
) -> Env:
    """A game as an `Env` with boolean observations ``[10, 10, num_channels]`` and discrete actions.

    - ``noise(key, shape)``: draws what ``shape`` many steps need, and resets with them. Consumes ``key``.
    - ``initial(noise) -> physical``: the first state of an episode, of integers and booleans.
    - ``dynamics(physical, action, noise) -> (physical, reward, terminated)``: one step. Actions are in range.
    - ``observe(physical) -> obs``.
    - ``time_limit``: in steps, a number or a tracer; reaching it truncates, unless the same step terminates.
    """

    def start(noise: PyTree) -> PyTree:
        return trees.strong(initial(noise))

    def reset(key: Key) -> tuple[EpisodeState, Array]:
        physical = start(noise(key, ()))
        return EpisodeState(physical, jnp.zeros((), jnp.int32)), observe(physical)

    def step(noise: PyTree, env_state: EpisodeState, action: Array) -> tuple[EpisodeState, Step]:
        action = jnp.clip(action, 0, num_actions - 1)
        physical, reward, terminated = dynamics(env_state.physical, action, noise)
        t = env_state.t + 1
        last = terminated | (t >= time_limit)
        following = jax.tree.map(lambda new, old: jnp.where(last, new, old), start(noise), physical)
        made = Step(observe(following), observe(physical), reward.astype(jnp.float32), terminated, last & ~terminated)
        return EpisodeState(following, jnp.where(last, 0, t)), made

    space = Box(False, True, (SIZE, SIZE, num_channels), jnp.dtype(bool))
    return Env(name, reset, noise, step, space, Discrete(num_actions))


def cell(x: Array, y: Array | int) -> Array:
    """The columns ``[10]`` int32 of a board on which only the cell in column ``x`` and row ``y`` is set."""
    return jnp.where(x == INDEX, jnp.left_shift(1, y), 0)


def picture(*channels: Array) -> Array:
    """The observation ``[10, 10, C]`` bool of ``C`` channels. Each is given by its columns ``[10]`` int32, in whose
    elements bit ``y`` is row ``y``."""
    columns = jnp.stack(channels, axis=-1)
    return (columns[None] >> INDEX[:, None, None]) & 1 > 0


def rows(num_channels: int, *places: Array) -> Array:
    """The observation ``[10, 10, num_channels]`` bool of ``places``, each ``[10]`` int32: the one in column ``x`` of
    channel ``c`` is ``num_channels * x + c``, in its row. Numbers that are no place of a row are none."""
    numbers = np.arange(SIZE * num_channels, dtype=np.int32)[None]
    seen = functools.reduce(operator.or_, [numbers == place[:, None] for place in places])
    return seen.reshape(SIZE, SIZE, num_channels)


def lanes(places: Array) -> Array:
    """Places ``[8]`` of the `LANES` as those ``[10]`` of all rows, for `rows`."""
    return jnp.pad(places, 1, constant_values=-1)
