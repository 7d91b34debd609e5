"""The common part of the games of MinAtar: a board of 10 rows and 10 columns, kept and drawn as bits of integers."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from purerl.envs.episodic import episodic, one_level
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, PyTree

SIZE = 10
"""Rows and columns of the board. Row 0 is at the top, column 0 at the left."""
INDEX = np.arange(SIZE, dtype=np.int32)
"""The numbers of the rows, or of the columns."""
FULL = 2**SIZE - 1
"""A row, or a column, in which all bits are set."""
LANES = INDEX[1:-1]
"""The rows in which things cross the board: all but the first and the last."""


def game(
    name: str,
    *,
    num_actions: int,
    num_channels: int,
    initial: Callable[[PyTree], PyTree],
    dynamics: Callable[..., tuple[PyTree, Array, Array]],
    observe: Callable[[PyTree], Array],
    time_limit: Any,
    levels: Callable[[Key, tuple[int, ...]], PyTree] = one_level,
    noise: Callable[[Key, tuple[int, ...]], PyTree] | None = None,
) -> Env:
    """Makes an `Env` of a game with boolean observations ``[10, 10, num_channels]`` and discrete actions.

    Args:
        name: The name of the `Env`.
        num_actions: The number of actions. Actions are brought into range.
        num_channels: The number of channels of an observation.
        initial: As in `episodic`.
        dynamics: As in `episodic`.
        observe: As in `episodic`.
        time_limit: As in `episodic`.
        levels: As in `episodic`; by default every episode begins alike.
        noise: As in `episodic`.
    """
    return episodic(
        name,
        levels=levels,
        initial=initial,
        dynamics=lambda physical, action, *chance: dynamics(physical, jnp.clip(action, 0, num_actions - 1), *chance),
        observe=observe,
        time_limit=time_limit,
        observation_space=Box(False, True, (SIZE, SIZE, num_channels), jnp.dtype(bool)),
        action_space=Discrete(num_actions),
        noise=noise,
    )


def cell(x: Array, y: Array | int) -> Array:
    """Returns the columns ``[10]`` int32 of a board on which only the cell in column ``x`` and row ``y`` is set."""
    return jnp.where(x == INDEX, jnp.left_shift(1, y), 0)


def of_columns(columns: Array) -> Array:
    """Returns the observation ``[10, 10, C]`` bool of the columns ``[10, C]`` int32 of all channels.

    Bit ``y`` is row ``y``.
    """
    return (columns[None] >> INDEX[:, None, None]) & 1 > 0


def of_rows(rows: Array) -> Array:
    """Returns the observation ``[10, 10, C]`` bool of the rows ``[10, C]`` int32 of all channels.

    Bit ``x`` is column ``x``.
    """
    return (rows[:, None] >> INDEX[None, :, None]) & 1 > 0


def side_by_side(*channels: Array) -> Array:
    """Joins ``C`` channels ``[10]`` to ``[10, C]``.

    It is a sum over all of them because XLA computes a sum once, where it would compute stacked arrays anew for each
    cell of the board.
    """
    own = np.eye(len(channels), dtype=bool)[None]
    return jnp.sum(jnp.where(own, jnp.stack(channels, axis=-1)[:, None], 0), axis=-1)


def lanes(values: Array) -> Array:
    """Places ``values`` ``[8]`` of the `LANES` in rows ``[10]``, the others of which are 0.

    It is a sum for the same reason as `side_by_side`.
    """
    return jnp.sum(jnp.where(INDEX[:, None] == LANES[None], values[None], 0), axis=-1)


def moved(place: Array, action: Array, back: int, forth: int, low: int = 0, high: int = SIZE - 1) -> Array:
    """Moves ``place`` a step back or forth by the actions of these numbers, and keeps it from ``low`` to ``high``.

    Args:
        place: A row or a column.
        action: The action.
        back: The number of the action that leads back.
        forth: The number of the action that leads forth.
        low: The lowest place.
        high: The highest place.
    """
    return jnp.clip(place + (action == forth) - (action == back), low, high)


def countdown(left: Array, period: Array | int) -> Array:
    """Counts down the steps until an event that happens every ``period`` steps.

    At 0 it happens, and the count begins anew.
    """
    return jnp.where(left == 0, period, left) - 1


def ahead(bit: Array, right: Array) -> Array:
    """Returns the next column bit to the right, or to the left; 0 beyond the board."""
    return jnp.where(right, bit << 1, bit >> 1) & FULL
