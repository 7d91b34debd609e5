"""Mazes: steps against a plain reimplementation in Python, levels against what they are drawn from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.check_env import check_env
from purerl.envs.native import mazes
from purerl.envs.native.maze import FORWARD, LEFT, RIGHT, WAYS, Maze
from purerl.errors import ConfigError

SIZE, LIMIT, N = 13, 40, 128
CELLS = SIZE**2


@pytest.fixture(scope="module")
def env():
    return envs.make("Maze-v0", max_steps=LIMIT)


@pytest.fixture(scope="module")
def drawn(env):
    """2000 levels ``[20, 100]``."""
    return jax.device_get(jax.jit(lambda key: env.levels(key, (20, 100)))(jax.random.key(0)))


@pytest.fixture(scope="module")
def play(env):
    """Plays actions ``[T]`` in each of some levels ``[N]``: first observations, and Steps ``[T, N, ...]``."""

    @jax.jit
    def run(levels, actions):
        env_state, obs = jax.vmap(env.begin)(levels)
        one = lambda env_state, action: jax.vmap(env.step)((), env_state, action)
        return obs, jax.lax.scan(one, env_state, actions)[1]

    return lambda levels, actions: jax.device_get(run(levels, jnp.asarray(actions, jnp.int32)))


def stacked(levels):
    return jax.tree.map(lambda *each: np.stack(each), *levels)


def some(levels, which):
    return [jax.tree.map(lambda x, i=i: x.reshape(-1, *x.shape[2:])[i], levels) for i in which]


def seen(level, row, column, direction):
    """What an agent sees, cell by cell, in a maze whose outside is wall; a cell is ahead of it and to its right."""
    view = np.zeros((5, 5, 2), bool)
    to_right = {(0, 1): (1, 0), (1, 0): (0, -1), (0, -1): (-1, 0), (-1, 0): (0, 1)}
    down, across = way = [(0, 1), (1, 0), (0, -1), (-1, 0)][direction]
    for ahead in range(5):
        for right in range(-2, 3):
            r = row + ahead * down + right * to_right[way][0]
            c = column + ahead * across + right * to_right[way][1]
            inside = 0 <= r < SIZE and 0 <= c < SIZE
            view[4 - ahead, right + 2] = not inside or level.walls[r, c], (r, c) == tuple(level.goal)
    return view


def plain(level, actions):
    """Yields what is seen, the reward and whether the goal is reached, after each action up to that."""
    (row, column), direction = level.place, int(level.direction)
    yield seen(level, row, column, direction), direction, 0.0, False
    for t, action in enumerate(actions):
        if action == LEFT:
            direction = (direction - 1) % 4
        elif action == RIGHT:
            direction = (direction + 1) % 4
        else:
            to = row + [0, 1, 0, -1][direction], column + [1, 0, -1, 0][direction]
            if min(to) >= 0 and max(to) < SIZE and not level.walls[to]:
                row, column = to
        reached = (row, column) == tuple(level.goal)
        yield seen(level, row, column, direction), direction, (1 - 0.9 * (t + 1) / LIMIT) * reached, reached
        if reached:
            return


def test_steps_are_those_of_a_plain_maze(play, drawn):
    """Random play that goes forward every second step, so that it meets walls, borders and goals."""
    levels = some(drawn, range(N))
    actions = np.random.default_rng(0).choice([LEFT, RIGHT, FORWARD, FORWARD], (LIMIT, N))
    first, made = play(stacked(levels), actions)
    ends = {True: 0, False: 0}
    for i, level in enumerate(levels):
        for t, (view, direction, reward, reached) in enumerate(plain(level, actions[:, i])):
            obs = first if t == 0 else jax.tree.map(lambda x, t=t: x[t - 1], made.next_obs)
            np.testing.assert_array_equal(obs["view"][i], view)
            np.testing.assert_array_equal(obs["direction"][i], np.arange(4) == direction)
            if t > 0:
                assert made.terminated[t - 1, i] == reached
                assert made.truncated[t - 1, i] == (t == LIMIT and not reached)
                np.testing.assert_allclose(made.reward[t - 1, i], reward, rtol=1e-6)
        ends[reached] += 1
    assert min(ends.values()) > 3


def test_levels_are_drawn_as_told(drawn):
    walls, goal, place, direction = (x.reshape(-1, *x.shape[2:]) for x in drawn)
    count = walls.sum(axis=(1, 2))
    expected = CELLS * (1 - (1 - 1 / CELLS) ** 25)
    assert abs(count.mean() - expected) < 4 * count.std() / np.sqrt(len(count))
    each = np.arange(len(walls))
    for cell in (goal, place):
        assert not walls[each, cell[:, 0], cell[:, 1]].any()
        for axis in (0, 1):  # uniform: chi-square of 12 degrees of freedom, below its 99.99 % point
            result = np.bincount(cell[:, axis], minlength=SIZE)
            assert np.sum((result - len(cell) / SIZE) ** 2) / (len(cell) / SIZE) < 40
    assert (goal != place).any(axis=1).all()
    assert np.ptp(np.bincount(direction, minlength=4)) < 200


@pytest.mark.rest
@pytest.mark.parametrize(("walls", "view"), [(25, 5), (0, 3), (60, 7)])
def test_mazes_keep_the_contract(walls, view):
    """Levels that are drawn, changed and built, too."""
    check_env(envs.make("Maze-v0", walls=walls, view=view, size=6 if walls < 60 else 9, max_steps=20), num_steps=64)


def test_a_change_is_an_edit(env, drawn):
    levels = stacked(some(drawn, range(2000)))
    keys = jax.random.split(jax.random.key(1), 2000)
    changed = jax.device_get(jax.jit(jax.vmap(env.design.change))(keys, levels))
    differ, moved = (levels.walls != changed.walls).sum(axis=(1, 2)), (levels.goal != changed.goal).any(axis=1)
    assert set(zip(differ.tolist(), moved.tolist(), strict=True)) == {(0, False), (1, False), (0, True)}
    for share in (differ.mean(), moved.mean()):
        assert abs(share - 1 / 3) < 4 * np.sqrt(2 / 9 / 2000)
    each = np.arange(2000)
    for cell in (changed.goal, changed.place):
        assert not changed.walls[each, cell[:, 0], cell[:, 1]].any()
    assert (changed.goal != changed.place).any(axis=1).all()
    for name in ("place", "direction"):
        np.testing.assert_array_equal(getattr(levels, name), getattr(changed, name))
    rows, columns = np.nonzero((levels.walls != changed.walls).sum(axis=0))
    assert len(rows) > 0.9 * CELLS and {0, SIZE - 1} <= set(rows) & set(columns)


def test_a_goal_without_another_free_cell_stays():
    env = envs.make("Maze-v0", size=3, walls=0)
    walls = np.ones((3, 3), bool)
    walls[0, :2] = False
    level = Maze(walls, np.int32([0, 0]), np.int32([0, 1]), np.int32(0))
    keys = jax.random.split(jax.random.key(0), 50)
    changed = jax.device_get(jax.jit(jax.vmap(env.design.change, in_axes=(0, None)))(keys, level))
    assert (changed.goal == 0).all() and (changed.walls.sum(axis=(1, 2)) >= 6).all()


def test_levels_are_built_of_choices():
    env = envs.make("Maze-v0", size=3, walls=4)
    assert env.design.sizes == (9,) * 6 + (4,) and env.design.solved == 0.0
    build = lambda *choices: jax.device_get(env.design.build(jax.random.key(0), jnp.array(choices, jnp.int32)))
    level = build(0, 4, 8, 8, 5, 4, 3)
    np.testing.assert_array_equal(level.walls, [[1, 0, 0], [0, 0, 0], [0, 0, 1]])
    assert level.goal.tolist() == [1, 2] and level.place.tolist() == [1, 1] and level.direction == 3
    level = build(0, 1, 2, 3, 8, 8, 0)  # the agent in the goal's cell, which is the last
    np.testing.assert_array_equal(level.walls, [[0, 1, 1], [1, 0, 0], [0, 0, 0]])
    assert level.goal.tolist() == [2, 2] and level.place.tolist() == [0, 0]
    assert envs.make("Maze-v0", walls=0).design.sizes == (CELLS,) * 27 + (4,)


def test_who_knows_the_way_solves_what_can_be_solved(play, drawn):
    """The held-out mazes, which all can be; those with 25 walls; and full ones, of which some cannot be."""
    dense = envs.make("Maze-v0", walls=120).levels
    full = jax.device_get(jax.jit(lambda key: dense(key, (1, 32)))(jax.random.key(0)))
    levels = [*mazes.held_out().values(), *some(drawn, range(24)), *some(full, range(32))]
    paths = [mazes.shortest_path(level) for level in levels]
    assert None not in paths[:8] and None in paths
    for level, path in zip(levels, paths, strict=True):
        assert (path is not None) == reachable(level)
    actions = np.full((LIMIT, len(levels)), LEFT)
    for i, path in enumerate(paths):
        actions[: len(path or ()), i] = (path or [])[:LIMIT]
    _, made = play(stacked(levels), actions)
    for i, path in enumerate(paths):
        solved = path is not None and len(path) <= LIMIT
        assert made.terminated[:, i].any() == solved
        if solved:
            assert np.flatnonzero(made.terminated[:, i])[0] == len(path) - 1
            np.testing.assert_allclose(made.reward[len(path) - 1, i], 1 - 0.9 * len(path) / LIMIT, rtol=1e-6)


def reachable(level):
    """Whether the goal is among the cells that spread from the agent's, without regard to directions."""
    reached = np.zeros((SIZE, SIZE), bool)
    reached[tuple(level.place)] = True
    for _ in range(CELLS):
        wide = np.pad(reached, 1)
        around = wide[1:-1, 1:-1] | wide[:-2, 1:-1] | wide[2:, 1:-1] | wide[1:-1, :-2] | wide[1:-1, 2:]
        reached = around & ~level.walls
    return bool(reached[tuple(level.goal)])


def test_held_out_mazes():
    """Walls are as many as in the mazes that they are; Labyrinth is a mirror image of LabyrinthFlipped."""
    levels = mazes.held_out()
    assert {name: int(level.walls.sum()) for name, level in levels.items()} == {
        "SixteenRooms": 46,
        "SixteenRooms2": 53,
        "Labyrinth": 72,
        "LabyrinthFlipped": 72,
        "Labyrinth2": 72,
        "StandardMaze": 73,
        "StandardMaze2": 72,
        "StandardMaze3": 71,
    }
    np.testing.assert_array_equal(levels["Labyrinth"].walls, levels["LabyrinthFlipped"].walls[:, ::-1])
    for level in levels.values():
        assert (
            level.walls.shape == (SIZE, SIZE) and not level.walls[tuple(level.goal)] | level.walls[tuple(level.place)]
        )
    sixteen = levels["SixteenRooms"]
    assert sixteen.place.tolist() == [1, 1] and sixteen.goal.tolist() == [11, 11]
    assert WAYS[sixteen.direction].tolist() == [0, 1]
    with pytest.raises(ValueError, match="unpack"):
        mazes.read("-*> ->-")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": 1}, r"size = 1: must be a whole number in \[2, 128\]"),
        ({"size": 3, "walls": 8}, r"walls = 8:"),
        ({"walls": 2.5}, "walls = 2.5:"),
        ({"view": 4}, "view = 4:"),
        ({"max_steps": 0}, "max_steps = 0:"),
    ],
)
def test_what_is_no_maze_is_refused(params, words):
    with pytest.raises(ConfigError, match=f"^env = 'Maze-v0': {words}"):
        envs.make("Maze-v0", **params)
