"""A union of environments: each is what it is alone, in spaces that hold all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import alone, drawn

from purerl import envs
from purerl.envs.union import union
from purerl.errors import ConfigError
from purerl.spaces import Box

NAMES = "CartPole-v1", "Acrobot-v1", "Catch-bsuite"


def play(env, actions, key):
    """The first observation, and what is seen after each of ``T`` steps, and the steps."""
    key_reset, key_noise = jax.random.split(key)
    state, obs = env.reset(key_reset)
    return obs, again(env, state, drawn(env, key_noise, actions.shape), actions)


def again(env, state, noises, actions):
    """What is seen after each step, and the steps."""

    def step(state, given):
        state, obs, made = alone(env)(given[0], state, given[1])
        return state, (obs, made)

    return jax.lax.scan(step, state, (noises, actions))[1]


@pytest.fixture(scope="module")
def made():
    return [envs.make(name) for name in NAMES]


@pytest.mark.rest
@pytest.mark.parametrize("task", range(3))
def test_each_is_what_it_is_alone(made, task):
    together = union(made)(jnp.int32(task))
    size = int(np.prod(made[task].observation_space.shape))
    assert together.observation_space.shape == (50,) and together.action_space.n == 3
    actions = jax.random.randint(jax.random.key(3), (20,), 0, 3)
    key = jax.random.key(1)
    obs, (after, steps) = jax.jit(lambda task, actions: play(union(made)(task), actions, key))(jnp.int32(task), actions)

    def one(keys):  # the keys that the union gives to the environments in it
        return jax.random.split(keys, 3)[task]

    key_reset, key_noise = jax.random.split(key)
    state, first = made[task].reset(one(key_reset))
    noises = tuple(each[task] for each in drawn(together, key_noise, actions.shape))
    own = actions % made[task].action_space.n
    own_after, own_steps = jax.jit(lambda s: again(made[task], s, noises, own))(state)
    flat = lambda x: np.asarray(x, np.float32).reshape(*x.shape[: x.ndim - first.ndim], -1)
    np.testing.assert_array_equal(obs[:size], flat(first))
    assert not np.any(obs[size:])
    for result, expected in ((after, own_after), (steps.next_obs, own_steps.next_obs)):
        np.testing.assert_allclose(result[:, :size], flat(expected), atol=1e-4)
        assert not np.any(result[:, size:])
    np.testing.assert_allclose(steps.reward, own_steps.reward)
    np.testing.assert_array_equal(steps.terminated, own_steps.terminated)
    np.testing.assert_array_equal(steps.truncated, own_steps.truncated)


@pytest.mark.rest
def test_is_an_environment(made):
    envs.check_env(union(made)(jnp.int32(1)))
    envs.check_env(union([envs.make("Pendulum-v1"), envs.make("MountainCarContinuous-v0")])(jnp.int32(0)))


@pytest.mark.rest
def test_lanes_may_differ_in_their_task(made):
    actions = jnp.ones(30, jnp.int32)
    run = lambda task: play(union(made)(task), actions, jax.random.key(0))[1][1].next_obs
    together = jax.jit(jax.vmap(run))(jnp.arange(3))
    for task in range(3):
        np.testing.assert_allclose(together[task], jax.jit(run)(jnp.int32(task)), atol=1e-5)


def test_continuous_actions_are_stretched():
    """An action of 0.5 in the union is 1 in Pendulum, whose bounds are -2 and 2."""
    pendulum = envs.make("Pendulum-v1")
    together = union([pendulum, envs.make("MountainCarContinuous-v0")])(jnp.int32(0))
    key = jax.random.key(0)
    state, _ = together.reset(key)
    noise = together.noise(key, ())
    _, step = together.step(noise, state, jnp.array([0.5]))
    _, plain = pendulum.step(noise[0], state[0], jnp.array([1.0]))
    np.testing.assert_allclose(step.next_obs[:3], plain.next_obs, atol=1e-6)


def test_problems():
    with pytest.raises(ConfigError, match="^envs = CartPole-v1, Pendulum-v1: actions must be all Discrete or all Box$"):
        union([envs.make("CartPole-v1"), envs.make("Pendulum-v1")])
    whole = envs.make("Pendulum-v1")._replace(action_space=Box(-2, 2, (1,), jnp.int32))
    with pytest.raises(ConfigError, match="^env = 'Pendulum-v1': has Box actions of int32; must be floats$"):
        union([whole, whole])
