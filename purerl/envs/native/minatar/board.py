"""What the games of MinAtar share: a board of 10 rows and 10 columns, kept and drawn as bits of integers."""

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
FULL = 2**SIZE - 1
"""A row, or a column, in which all is set."""
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


def of_columns(columns: Array) -> Array:
    """The observation ``[10, 10, C]`` bool of the columns ``[10, C]`` int32 of all channels; bit ``y`` is row ``y``."""
    return (columns[None] >> INDEX[:, None, None]) & 1 > 0


def of_rows(rows: Array) -> Array:
    """The observation ``[10, 10, C]`` bool of the rows ``[10, C]`` int32 of all channels; bit ``x`` is column ``x``."""
    return (rows[:, None] >> INDEX[None, :, None]) & 1 > 0


def side_by_side(*channels: Array) -> Array:
    """``[10, C]`` of ``C`` channels ``[10]``. It is a sum over all of them because XLA computes a sum once, where it
    would compute what is merely stacked anew for each cell of the board."""
    own = np.eye(len(channels), dtype=bool)[None]
    return jnp.sum(jnp.where(own, jnp.stack(channels, axis=-1)[:, None], 0), axis=-1)


def lanes(values: Array) -> Array:
    """``values`` ``[8]`` of the `LANES` as rows ``[10]``, the others of which are 0: a sum for the same reason."""
    return jnp.sum(jnp.where(INDEX[:, None] == LANES[None], values[None], 0), axis=-1)


def ahead(bit: Array, right: Array) -> Array:
    """The next column bit to the right, or to the left; 0 beyond the board."""
    return jnp.where(right, bit << 1, bit >> 1) & FULL
