"""The adapter of brax, on a tiny environment with brax's interface and on a real task."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from purerl import envs, ppo
from purerl.errors import ConfigError
from purerl.learners.families import actor_critic
from purerl.spaces import Box

needs_brax = pytest.mark.skipif(importlib.util.find_spec("brax") is None, reason="brax is an extra")


@struct.dataclass
class State:
    pipeline_state: jax.Array
    obs: jax.Array
    reward: jax.Array
    done: jax.Array
    metrics: dict
    info: dict


class Walk:
    """A walk from a random place by as much as the action says, which pays the action and is done beyond ``end``."""

    action_size = 1

    def __init__(self, end=1e9):
        self.end = end

    def reset(self, rng):
        place = jax.random.uniform(rng, (1,))
        return State(place, place, jnp.zeros(()), jnp.zeros(()), {"sum": jnp.zeros(())}, {})

    def step(self, state, action):
        place = state.pipeline_state + action
        metrics = {"sum": state.metrics["sum"] + action[0]}
        return state.replace(
            pipeline_state=place,
            obs=place,
            reward=action[0],
            done=jnp.where(place[0] > self.end, 1.0, 0.0),
            metrics=metrics,
        )


def play(env, actions, seed=0):
    """The first observation, and the Steps, what is seen after them and the states then ``[T, ...]``, of the one row of
    a fleet."""
    row = envs.fleet(env, 1)

    @jax.jit
    def run(key):
        key_reset, key_noise = jax.random.split(key)
        state, obs = row.reset(key_reset)

        def act(state, inputs):
            state, following, step = row.step(inputs[0], state, inputs[1][None])
            return state, jax.tree.map(lambda x: x[0], (step, following, state))

        return obs[0], jax.lax.scan(act, state, (row.noise(key_noise, (len(actions),)), actions))[1]

    return jax.device_get(run(jax.random.key(seed)))


def test_cut_after_max_steps():
    """Actions are clipped; a cut is no termination; the true next observation is there; every episode begins anew."""
    actions = jnp.array([[0.5], [3.0], [-7.0], [0.25], [0.25], [0.25]])
    first, (step, obs, state) = play(envs.from_brax("walk", Walk(), max_steps=3), actions)
    np.testing.assert_array_equal(step.reward, [0.5, 1.0, -1.0, 0.25, 0.25, 0.25])
    np.testing.assert_array_equal(step.truncated, [False, False, True] * 2)
    assert not step.terminated.any()
    np.testing.assert_allclose(step.next_obs[:3, 0], first + [0.5, 1.5, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(obs[:2], step.next_obs[:2])
    starts = [first[0], obs[2, 0], obs[5, 0]]
    assert len(set(starts)) == 3 and min(starts) >= 0 and max(starts) <= 1
    np.testing.assert_allclose(step.next_obs[3, 0], obs[2, 0] + 0.25, rtol=1e-6)
    np.testing.assert_array_equal(state.time, [1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(state.inner.metrics["sum"][[2, 5]], 0.0)


def test_termination_wins():
    _, (step, *_) = play(envs.from_brax("walk", Walk(end=2.0), max_steps=2), jnp.ones((2, 1)))
    np.testing.assert_array_equal(step.terminated, [False, True])
    assert not step.truncated.any()


def test_repeated_actions_stop_at_the_end():
    first, (step, *_) = play(envs.from_brax("walk", Walk(end=2.0), action_repeat=5), jnp.ones((1, 1)))
    assert step.terminated[0] and step.reward[0] == (2 if first[0] > 0 else 3)
    np.testing.assert_allclose(step.next_obs[0], first + step.reward[0])
    _, (step, *_) = play(envs.from_brax("walk", Walk(), action_repeat=4), jnp.ones((3, 1)))
    np.testing.assert_array_equal(step.reward, 4.0)


def test_states_are_computed_where_episodes_end():
    """brax computes no first state at a step at which nothing ended, and the fleet tells how many rounds it took."""
    env = envs.from_brax("walk", Walk(), max_steps=3)
    rows = envs.fleet(env, 2)
    last = jnp.array([[False, False], [True, False], [True, True], [False, False]])
    assert env.resets == "few" and rows.metrics(last)["reset_rounds"] == 0.5


@pytest.mark.parametrize("params", [{"max_steps": 0}, {"action_repeat": 1.0}])
def test_numbers_too_small(params):
    with pytest.raises(ConfigError, match=next(iter(params))):
        envs.from_brax("walk", Walk(), **params)


def test_contract():
    envs.check_env(envs.from_brax("walk", Walk(end=3.0), max_steps=5))


@pytest.mark.rest
def test_critic_knows_truncation():
    """Reward 1 a step for ever, cut every 5: the critic is within 1 % of 1 / (1 - gamma)."""

    class Constant(Walk):
        def step(self, state, action):
            return super().step(state, 0.0 * action).replace(reward=jnp.ones(()), obs=jnp.ones(1))

        def reset(self, rng):
            return super().reset(rng).replace(obs=jnp.ones(1))

    env = envs.from_brax("constant", Constant(), max_steps=5)
    config = ppo.Config(
        total_steps=8 * 16 * 300,
        num_envs=8,
        num_steps=16,
        learning_rate=1e-2,
        gamma=0.9,
        clip_epsilon=10.0,
        hidden_sizes=(16,),
    )
    network = actor_critic.make_agent(config, env).network
    state = jax.jit(ppo.make_train(config, env))(jax.random.key(0)).state.learner
    np.testing.assert_allclose(network.value(state.params, jnp.ones((1, 1)), ()), 10.0, rtol=0.01)


def test_unknown_names():
    with pytest.raises(ConfigError, match="nearest: brax/spring/reacher"):
        envs.make("brax/spring/reachr")
    with pytest.raises(ConfigError, match="unknown parameter gravity"):
        envs.make("brax/spring/reacher", gravity=1.0)


def test_missing_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'purerl\[brax\]'"):
        envs.make("brax/spring/reacher")


@needs_brax
def test_reacher_is_brax():
    """Step for step what brax's own environment does, and the contract of all environments."""
    from brax import envs as theirs

    env, raw = envs.make("brax/spring/reacher", max_steps=8), theirs.get_environment("reacher", backend="spring")
    assert env.action_space == Box(-1.0, 1.0, (raw.action_size,), jnp.float32)
    actions = jax.random.uniform(jax.random.key(1), (7, raw.action_size), minval=-1, maxval=1)
    first, (step, *_) = play(env, actions)

    @jax.jit
    def expected(key):
        key_row = jax.random.split(jax.random.split(key)[0], 1)[0]
        state = raw.reset(env.levels(key_row, ()))
        return state.obs, jax.lax.scan(lambda s, a: (lambda n: (n, (n.obs, n.reward)))(raw.step(s, a)), state, actions)[
            1
        ]

    with jax.numpy_rank_promotion("allow"):
        obs, (following, reward) = jax.device_get(expected(jax.random.key(0)))
    np.testing.assert_allclose(first, obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(step.next_obs, following, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(step.reward, reward, rtol=1e-4, atol=1e-5)
    envs.check_env(env)
