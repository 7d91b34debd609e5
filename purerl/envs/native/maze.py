"""Mazes in which an agent sees what lies ahead of it: a family of levels for curricula."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw, trees
from purerl.envs.episodic import EpisodeState, episodic
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Design, Env, Key, PyTree, Scalar, Step

WAYS = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]], np.int32)
"""Rows and columns of a step forward, for the directions east, south, west, north, which are clockwise."""
LEFT, RIGHT, FORWARD = 0, 1, 2
BUILT = 25
"""How many walls `Design.build` places in mazes that are drawn without any."""
LOST = 0.9
"""How much the reward for the goal falls over all steps of an episode."""


class Maze(NamedTuple):
    """A level, of arrays of JAX or numpy.

    It has walls ``[H, W]`` (bool), row and column of the goal and of the agent ``[2]`` (int32), each in a cell without
    a wall, and the direction ``[]`` (int32) that the agent looks in, a row of `WAYS`.
    """

    walls: Any
    goal: Any
    place: Any
    direction: Any


class Physical(NamedTuple):
    """The state of a maze.

    It has the walls ``[cells]`` (bool), row by row, of the maze and of a margin around it, which is all wall and as
    wide as the agent sees; the cells of the goal and of the agent (int32), by their number among these; and the
    direction (int32) that the agent looks in.
    """

    walls: Array
    goal: Array
    place: Array
    direction: Array


def maze(*, size: int = 13, walls: int = 25, view: int = 5, max_steps: Any = 250) -> Env:
    """Makes Maze-v0: an agent that sees little looks for the goal of a maze.

    Source: Dennis et al. 2020, PAIRED, arXiv 2012.02096.

    Actions 0 to 2: turn left, turn right, go forward, which walls and the border stop. Reaching the goal terminates the
    episode and pays ``1 - 0.9 * t / max_steps`` at step ``t``, counted from 1; nothing else is paid. Observations are a
    dict. ``view`` ``[view, view, 2]`` (bool) shows walls and the goal in the cells ahead, also those behind walls, with
    the agent in the middle of the last row; what lies outside of the maze is wall. ``direction`` ``[4]`` (bool) is that
    of the agent, one-hot: east, south, west, north.

    A level is a `Maze`. Drawn ones have ``walls`` walls in cells drawn with replacement, then the goal and the agent in
    two of the free cells, and a direction, all uniformly; some mazes cannot be solved. An episode is solved if the goal
    is reached.

    A change of a level is one edit of ACCEL (Parker-Holder et al. 2022, arXiv 2203.01302) with the odds of JaxUED
    (``make_level_mutator_minimax``, github.com/DramaCow/jaxued), a third each: nothing; a wall more or less, in any
    cell but those of goal and agent; the goal moves to another free cell. The choices of `Design.build` are a cell for
    each wall, for `BUILT` ones if ``walls`` is 0, then one for the goal, one for the agent, which stands in the next
    cell if that is the goal's, and a direction. There is no wall in the cells of goal and agent, whatever was chosen.

    Args:
        size: The number of rows and of columns.
        walls: How many walls are drawn. ACCEL begins with 0; minimax draws 60.
        view: Rows and columns that the agent sees, an odd number.
        max_steps: Steps after which an episode is truncated.
    """
    _check(size, walls, view)
    cells = size**2
    margin = view - 1
    stride = size + 2 * margin
    ways, visible = (moves @ np.array([stride, 1], np.int32) for moves in (WAYS, views(view)))  # [4], [4, view * view]

    def levels(key: Key, shape: tuple[int, ...]) -> Maze:
        numbers = draw.uniform(key, (*shape, walls + 3))
        made: Maze = trees.split(jax.vmap(drawn)(numbers.reshape(-1, walls + 3)), shape)
        return made

    def drawn(numbers: Array) -> Maze:
        blocked = jnp.any(_whole(numbers[:walls], cells)[:, None] == jnp.arange(cells)[None], axis=0)
        free = cells - jnp.sum(blocked)
        goal, place = _whole(numbers[walls], free), _whole(numbers[walls + 1], free - 1)
        ranks = goal, place + (place >= goal)
        goal, place = (_ranked(~blocked, rank) for rank in ranks)
        return level(blocked, goal, place, _whole(numbers[walls + 2], 4))

    def level(blocked: Array, goal: Array, place: Array, direction: Array) -> Maze:
        goal, place = (jnp.stack([cell // size, cell % size]) for cell in (goal, place))
        return Maze(blocked.reshape(size, size), goal, place, direction)

    def initial(level: Maze) -> Physical:
        goal, place = ((row + margin) * stride + column + margin for row, column in (level.goal, level.place))
        return Physical(_framed(level.walls, margin).ravel(), goal, place, level.direction)

    def dynamics(now: Physical, action: Array) -> tuple[Physical, Array, Array]:
        ahead = now.place + jnp.asarray(ways)[now.direction]
        place = jnp.where((action >= FORWARD) & ~now.walls[ahead], ahead, now.place)
        turned = (now.direction + (action == RIGHT) - (action <= LEFT)) & 3
        return now._replace(place=place, direction=turned), place == now.goal, place == now.goal

    def observe(now: Physical) -> dict[str, Array]:
        ahead = now.place + jnp.asarray(visible)[now.direction]
        kinds = jnp.stack([now.walls[ahead], ahead == now.goal], axis=-1)
        return {"view": kinds.reshape(view, view, 2), "direction": jnp.arange(4) == now.direction}

    def number(place: Array) -> Array:
        return place[0] * size + place[1]

    def change(key: Key, level: Maze) -> Maze:
        edit, cell, rank = draw.uniform(key, (3,))
        goal, place = number(level.goal), number(level.place)
        cell = _whole(cell, cells - 2)
        cell += cell >= jnp.minimum(goal, place)
        cell += cell >= jnp.maximum(goal, place)
        each = jnp.arange(cells)
        blocked = level.walls.ravel() ^ ((edit < 1 / 3) & (each == cell))
        free = ~blocked & (each != goal) & (each != place)
        moves, number_free = edit > 2 / 3, jnp.sum(free)
        to = _ranked(free, _whole(rank, number_free))
        to = jnp.where(moves & (number_free > 0), to, goal)
        return level._replace(walls=blocked.reshape(size, size), goal=jnp.stack([to // size, to % size]))

    def build(key: Key, choices: Array) -> Maze:
        *_, goal, place, direction = choices
        place = jnp.where(place == goal, (place + 1) % cells, place)
        each = jnp.arange(cells)
        blocked = jnp.any(choices[:-3, None] == each[None], axis=0) & (each != goal) & (each != place)
        return level(blocked, goal, place, direction)

    env = episodic(
        "Maze-v0",
        levels=levels,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps,
        observation_space={
            "view": Box(False, True, (view, view, 2), jnp.dtype(bool)),
            "direction": Box(False, True, (4,), jnp.dtype(bool)),
        },
        action_space=Discrete(3),
    )

    def step(noise: PyTree, env_state: EpisodeState, action: Array) -> tuple[EpisodeState, Step]:
        env_state, made = env.step(noise, env_state, action)
        return env_state, made._replace(reward=made.reward * (1 - LOST * env_state.t / max_steps))

    sizes = (cells,) * ((walls or BUILT) + 2) + (4,)
    return env._replace(step=step, partly_observed=True, design=Design(change, sizes, build, solved=0.0))


def _check(size: int, walls: int, view: int) -> None:
    """Raises `ConfigError` for a maze that is not possible."""
    for name, value, least, most in (("size", size, 2, 128), ("walls", walls, 0, size**2 - 2), ("view", view, 3, 127)):
        if not (isinstance(value, int) and least <= value <= most):
            raise ConfigError(f"env = 'Maze-v0': {name} = {value!r}: must be a whole number in [{least}, {most}]")
    if view % 2 == 0:
        raise ConfigError(f"env = 'Maze-v0': view = {view}: must be odd, with the agent in the middle")


def _framed(walls: Array, margin: int) -> Array:
    """Puts ``walls`` ``[H, W]`` into a frame of walls; XLA on CPU joins arrays faster than it pads."""
    side = jnp.ones((walls.shape[0], margin), bool)
    walls = jnp.concatenate([side, walls, side], axis=1)
    above = jnp.ones((margin, walls.shape[1]), bool)
    return jnp.concatenate([above, walls, above])


def views(view: int) -> np.ndarray:
    """Returns rows and columns, from the agent, of the cells that it sees in each direction.

    Their shape is ``[4, view * view, 2]``, int32.
    """
    ahead, right = np.mgrid[view - 1 : -1 : -1, -(view // 2) : view // 2 + 1].reshape(2, 1, -1, 1)
    return (ahead * WAYS[:, None] + right * np.roll(WAYS, -1, axis=0)[:, None]).astype(np.int32)


def _whole(number: Array, below: Scalar) -> Array:
    """Scales a number in [0, 1) to a whole one in [0, ``below``), int32."""
    return (number * below).astype(jnp.int32)


def _ranked(mask: Array, rank: Array) -> Array:
    """Returns the index of the element of ``mask`` ``[N]`` that is true and has so many true ones before it."""
    return jnp.sum(jnp.cumsum(mask) <= rank)
