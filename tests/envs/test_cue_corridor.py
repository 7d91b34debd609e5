"""The corridor against its rules, written out in numpy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import alone

from purerl import envs
from purerl.envs.native.exploration.cue_corridor import onward
from purerl.errors import ConfigError

LENGTH, CUE_CELL = 5, 3


def walk(actions, cue, way, cue_cell):
    """Observations, rewards and whether each step ends the episode, of an episode that plays ``actions``."""
    obs, rewards, ends = [], [], []
    for cell, action in enumerate(actions, 1):
        shown = cue if cell == cue_cell else 0
        obs.append([*(float(cell == c) for c in range(1, len(way) + 1)), shown])
        right = (cue + 1) // 2 if cell == len(way) else way[cell - 1]
        rewards.append(float(cell == len(way) and action == right))
        ends.append(cell == len(way) or action != right)
        if ends[-1]:
            break
    return obs, rewards, ends


def test_every_episode_there_is():
    """All 32 sequences of actions under both cues: each is played to its end, and two of them are paid."""
    env = envs.make("CueCorridor-v0", length=LENGTH, cue_cell=CUE_CELL)
    plays = jnp.array(list(itertools.product((0, 1), repeat=LENGTH)))

    def play(cue, actions):
        env_state, _ = env.reset(jax.random.key(0))
        after = alone(env)

        def step(noise, env_state, action):
            env_state, obs, made = after(noise, env_state, action)
            return env_state, (obs, made)

        start = env_state._replace(physical=env_state.physical._replace(cue=cue))
        return jax.lax.scan(lambda state, action: step(((), jnp.zeros(())), state, action), start, actions)[1]

    made = jax.jit(jax.vmap(jax.vmap(play, in_axes=(None, 0)), in_axes=(0, None)))(jnp.array([0, 1]), plays)
    paid = 0.0
    for cue, number in itertools.product((-1, 1), range(len(plays))):
        actions = plays[number].tolist()
        obs, rewards, ends = walk(actions, cue, onward(LENGTH).tolist(), CUE_CELL)
        seen, one = jax.tree.map(lambda x, a=(cue + 1) // 2, b=number: np.asarray(x[a, b]), made)
        steps = len(ends)
        np.testing.assert_array_equal(one.next_obs[: steps - 1], np.reshape(obs[1:], (-1, LENGTH + 1)))
        np.testing.assert_array_equal(one.reward[:steps], rewards)
        np.testing.assert_array_equal(one.terminated[:steps], ends)
        assert not np.any(one.truncated[:steps])
        np.testing.assert_array_equal(seen[steps - 1], np.eye(LENGTH + 1)[0])  # the next episode begins
        paid += sum(rewards)
    assert paid == 2


def test_cues_are_fair_and_the_way_is_fixed():
    env = envs.make("CueCorridor-v0", cue_cell=1)
    _, obs = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 400))
    assert set(np.unique(obs[:, -1])) == {-1.0, 1.0} and abs(np.mean(obs[:, -1])) < 3 / np.sqrt(400)
    ways = [tuple(onward(16, seed)) for seed in range(20)]
    assert len(set(ways)) == 20 and abs(np.mean(ways) - 0.5) < 3 * 0.5 / np.sqrt(320) and ways[0] == tuple(onward(16))


@pytest.mark.parametrize("params", [{"length": 0}, {"cue_cell": 17}, {"cue_cell": 0}, {"length": 2.5}])
def test_corridors_that_cannot_be(params):
    with pytest.raises(
        ConfigError, match=f"^env = 'CueCorridor-v0': {next(iter(params))} = .*: must be a whole number"
    ):
        envs.make("CueCorridor-v0", **params)
