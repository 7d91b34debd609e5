"""The robot among obstacles, against plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.native import obstacles
from purerl.errors import ConfigError

ENV = envs.make("Obstacles-v0")
N = 64


@pytest.fixture(scope="module")
def played():
    """Beginnings ``[N]``, random actions ``[T, N]``, and what each step led to."""
    levels = ENV.levels(jax.random.key(0), (N,))
    state, obs = jax.jit(jax.vmap(ENV.begin))(levels)
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (40, N, 2)).astype(np.float32)

    def step(state, action):
        state, made = jax.vmap(ENV.step, (None, 0, 0))((), state, action)
        return state, (state, made)

    rows = jax.jit(lambda state, actions: jax.lax.scan(step, state, actions)[1])(state, actions)
    return jax.device_get((levels, state, obs, actions, *rows))


def test_steps_are_those_of_a_plain_loop(played):
    _, state, _, actions, states, made = played
    ways = set()
    for i in range(N):
        place, goal = state.physical.place[i], state.physical.goal[i]
        middles, radii = state.physical.middles[i], state.physical.radii[i]
        for t in range(40):
            after = place + 0.05 * np.clip(actions[t, i], -1, 1)
            hit = np.any(after < 0.02) or np.any(after > 0.98)
            hit |= any(np.hypot(*(after - m)) < r + 0.02 for m, r in zip(middles, radii, strict=True) if r > 0)
            there = np.hypot(*(after - goal)) < 0.05
            reward = 0.3 * (np.hypot(*(place - goal)) - np.hypot(*(after - goal))) + float(there and not hit)
            np.testing.assert_allclose(states.physical.place[t, i], after, atol=1e-6)
            np.testing.assert_allclose(made.reward[t, i], reward, atol=1e-5)
            assert made.terminated[t, i] == (hit or there)
            ways.add((bool(hit), bool(there)))
            place = states.physical.place[t, i]
            if hit or there:
                break
    assert {(True, False), (False, True), (False, False)} <= ways


def test_beams_end_where_a_march_along_them_does(played):
    _, state, obs, *_ = played
    angles = 2 * np.pi * np.arange(16) / 16
    steps = np.arange(0, 1.5, 1e-3)
    for i in range(8):
        place, middles, radii = state.physical.place[i], state.physical.middles[i], state.physical.radii[i]
        for beam, angle in enumerate(angles):
            along = place[None] + steps[:, None] * np.array([np.cos(angle), np.sin(angle)])[None]
            out = np.any((along < 0) | (along > 1), axis=1)
            inside = np.any(np.hypot(*(along[:, None] - middles[None]).transpose(2, 0, 1)) < radii[None], axis=1)
            assert obs[i, beam] == pytest.approx(steps[np.argmax(out | inside)], abs=3e-3)
        np.testing.assert_allclose(obs[i, 16:], state.physical.goal[i] - place, atol=1e-6)


def test_nothing_covers_the_start_or_the_goal(played):
    levels, state, *_ = played
    assert levels.radii.max() > 0.14 and levels.start.min() >= 0.05
    for end in (state.physical.place, state.physical.goal):
        apart = np.hypot(*(state.physical.middles - end[:, None]).transpose(2, 0, 1)) - state.physical.radii
        assert np.all(apart[state.physical.radii > 0] >= 0.07 - 1e-6)
    assert np.any(state.physical.radii < levels.radii) and np.all(state.physical.radii <= levels.radii)


def test_an_episode_is_solved_if_the_goal_is_reached():
    """All progress pays less than the limit, and the goal more, wherever it lies."""
    way = np.sqrt(2) * 0.9
    assert obstacles.PROGRESS * way < ENV.design.solved < 1 - obstacles.PROGRESS * obstacles.NEAR


def test_a_change_moves_one_thing_a_little():
    level = jax.tree.map(lambda x: x[0], ENV.levels(jax.random.key(1), (1,)))
    changed = jax.vmap(ENV.design.change, (0, None))(jax.random.split(jax.random.key(2), 200), level)
    points = lambda c: np.concatenate([c.start[..., None, :], c.goal[..., None, :], c.middles], axis=-2)
    moved = np.any(points(changed) != points(level), axis=-1)
    assert np.all(moved.sum(axis=1) <= 1) and np.all(moved.any(axis=0))
    assert np.abs(points(changed) - points(level)).max() <= 0.1 + 1e-6


def test_built_levels_are_as_they_were_chosen():
    sizes = np.array(ENV.design.sizes)
    made = ENV.design.build(jax.random.key(0), jnp.zeros(len(sizes), jnp.int32))
    np.testing.assert_allclose(made.start, 0.05 + 0.9 * 0.5 / 16)
    assert np.all(made.radii == 0)
    assert np.all(ENV.design.build(jax.random.key(0), jnp.asarray(sizes - 1)).radii == np.float32(0.15))


@pytest.mark.rest
def test_keeps_the_contract():
    envs.check_env(ENV, num_steps=128)


@pytest.mark.parametrize("name", ["obstacles", "beams"])
def test_counts_are_checked(name):
    with pytest.raises(ConfigError, match=f"^env = 'Obstacles-v0': {name} = 0: must be a whole number, at least 1"):
        envs.make("Obstacles-v0", **{name: 0})
