"""What is recorded is what was played: beside `evaluation.play` with the same key, and beside a walk in numpy."""

import jax
import jax.numpy as jnp
import numpy as np

from purerl import envs, record
from purerl.loops.evaluation import Player, play, random_player

KEY = jax.random.key(5)


def lengths(data):
    return np.diff(np.concatenate([[-1], np.flatnonzero(data.last)]))


def test_episodes_are_those_that_an_evaluation_plays(monkeypatch):
    """Also across the segments in which the host takes them, with episodes that are cut off."""
    monkeypatch.setattr("purerl.loops.recording.SEGMENT", 7)
    env = envs.make("CartPole-v1")
    whole, count, most = random_player(env), 12, 25
    data = record(KEY, env, whole, count, most)
    played = jax.jit(lambda key: play(key, env, whole, count, most))(KEY)
    np.testing.assert_array_equal(lengths(data), played.episode_length)
    ends = np.flatnonzero(data.last)
    np.testing.assert_array_equal(data.truncated[ends], ~played.finished)
    np.testing.assert_array_equal(data.terminated[ends], played.finished)
    assert 0 < data.truncated.sum() < count and data.final_obs.shape == (count, 4)
    after = np.empty_like(data.obs)  # CartPole's observation is its state: each step leads to the next
    after[:-1] = data.obs[1:]
    after[ends] = data.final_obs
    begin, _ = env.reset(jax.random.key(0))
    step = jax.jit(jax.vmap(lambda obs, a: env.step((), begin._replace(physical=unflat(begin, obs)), a)[1]))
    np.testing.assert_allclose(step(data.obs, data.action).next_obs, after, rtol=1e-5, atol=1e-6)


def unflat(state, obs):
    """The physical state of CartPole that is seen as ``obs``."""
    leaves, structure = jax.tree.flatten(state.physical)
    return jax.tree.unflatten(structure, [obs] if len(leaves) == 1 else list(obs))


def test_agents_have_episodes_of_their_own():
    env = envs.make("MatrixGame-v0")
    act = lambda here, key: (jnp.arange(len(jax.tree.leaves(here.obs)[0])) % 2, here.carry + 1)
    data = record(KEY, env, Player(act, lambda rows: jnp.zeros(rows, jnp.int32)), 3, 100)
    assert np.sum(data.last) == 3 * env.num_agents
    np.testing.assert_array_equal(data.action[data.last], np.tile(np.arange(env.num_agents) % 2, 3))
