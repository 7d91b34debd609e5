"""The sea against gymnax's, the grid against its rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import alone, play

from purerl import envs
from purerl.errors import ConfigError


def shown(env, steps, num=8, act=None, seed=0):
    """What is seen before each step and after it ``[T, B, ...]``, actions and Steps."""
    first, _, actions, after, made = play(env, num, steps, seed, act and (lambda obs, _: act(obs)))
    return np.concatenate([first[None], after[:-1]]), after, actions, made


@pytest.mark.rest
@pytest.mark.parametrize("depth", [4, 7])
def test_sea_is_gymnax_of_any_depth(depth):
    gymnax = pytest.importorskip("gymnax.environments.bsuite.deep_sea")
    sea = gymnax.DeepSea(depth)
    theirs = envs.from_gymnax("DeepSea-bsuite", sea, sea.default_params)
    obs, after, action, made = shown(envs.make("DeepSea-v0", depth=depth), 3 * depth)
    again = alone(theirs)

    def step(env_state, inputs):
        action, key = inputs
        env_state, following, made = again((key, key), env_state, action)
        return env_state, (following, made)

    keys = jax.random.split(jax.random.key(2), 3 * depth)
    start, first = theirs.reset(jax.random.key(0))
    replayed_after, replayed = jax.jit(jax.vmap(lambda actions: jax.lax.scan(step, start, (actions, keys))[1], 1, 1))(
        action
    )
    np.testing.assert_array_equal(obs[0], np.broadcast_to(first, obs[0].shape))
    np.testing.assert_array_equal(after, replayed_after)
    for name in ("next_obs", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(made, name), getattr(replayed, name))
    np.testing.assert_allclose(made.reward, replayed.reward, atol=1e-7)
    assert np.sum(made.reward > 0.5) < np.sum(made.terminated)


def test_the_treasure_lies_at_the_end_of_one_path():
    env = envs.make("DeepSea-v0", depth=5, seed=3, move_cost=0.1)
    right = np.asarray(jax.random.bernoulli(jax.random.key(3), 0.5, (5, 5)), np.int32)
    assert right[np.arange(5), np.arange(5)].min() == 0
    along = lambda obs: jnp.sum(jnp.where(obs, jnp.asarray(right)[None], 0), axis=(1, 2))
    *_, made = shown(env, 5, 1, along)
    np.testing.assert_allclose(np.sum(made.reward), 0.9, rtol=1e-6)
    with pytest.raises(ConfigError, match="^env = 'DeepSea-v0': depth = 0:"):
        envs.make("DeepSea-v0", depth=0)


def test_grid_moves_within_its_borders_beside_noise():
    env = envs.make("NoisyGrid-v0", size=4, channels=3, max_steps=6)
    obs, _, action, made = shown(env, 30)
    place = lambda x: np.stack([np.argmax(x[..., :4], axis=-1), np.argmax(x[..., 4:8], axis=-1)], axis=-1)
    moves = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
    np.testing.assert_array_equal(place(made.next_obs), np.clip(place(obs) + moves[action], 0, 3))
    assert np.all(place(obs[::6]) == 0) and not made.reward.any() and not made.terminated.any()
    np.testing.assert_array_equal(made.truncated, np.broadcast_to(np.arange(30)[:, None] % 6 == 5, (30, 8)))
    for screen in (obs[..., 8:], made.next_obs[..., 8:]):
        assert len(np.unique(screen)) == screen.size and screen.min() >= 0 and screen.max() < 1
    with pytest.raises(ConfigError, match="^env = 'NoisyGrid-v0': channels = 0:"):
        envs.make("NoisyGrid-v0", channels=0)


def test_random_play_of_the_grid_sees_few_cells():
    """Close to 17 of them in 40 steps: what learning is compared to."""
    obs, *_, made = shown(envs.make("NoisyGrid-v0"), 40, 500)
    met = np.concatenate([obs[:1], made.next_obs])
    place = np.argmax(met[..., :9], axis=-1) * 9 + np.argmax(met[..., 9:18], axis=-1)
    seen = [len(np.unique(column)) for column in place.T]
    np.testing.assert_allclose(np.mean(seen), 16.9, atol=0.8)
