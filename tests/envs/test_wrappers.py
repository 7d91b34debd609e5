"""Wrappers against a plain Python simulation of what they wrap; the reserved parameters of `make`."""

import dataclasses
import inspect
from collections import deque

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.catalogue import EXTRAS, NATIVE, PROBES
from purerl.cli import parsing
from purerl.envs.wrappers import frame_stack, show_last
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, sample

SHORT = [
    ("CartPole-v1", {"max_steps": 13}),
    ("probe/constant-reward", {"reward": 2.5, "max_steps": 3}),
    ("probe/discount-two-steps", {}),
    ("probe/obs-action-match", {}),
]
"""Episodes that end and are cut off, those of the probes sooner than a stack is full."""


def play(env, num_steps=60):
    """Random play of one environment: the first observation, then actions and Steps ``[T, ...]``."""

    @jax.jit
    def run(key):
        key_reset, key_noise, key_action = jax.random.split(key, 3)
        env_state, obs = env.reset(key_reset)
        noise, actions = env.noise(key_noise, (num_steps,)), sample(env.action_space, key_action, (num_steps,))
        _, step = jax.lax.scan(lambda s, inputs: env.step(inputs[0], s, inputs[1]), env_state, (noise, actions))
        return obs, actions, step

    return jax.device_get(run(jax.random.key(0)))


def same_play(env, wrapped):
    """Plays both alike: first observations, the actions, and both Steps, which agree in all but observations."""
    (first, actions, step), (wrapped_first, _, wrapped_step) = play(env), play(wrapped)
    last = step.terminated | step.truncated
    assert last.any() and not last.all() or env.name.endswith("match")
    np.testing.assert_array_equal(wrapped_step.reward, step.reward)
    np.testing.assert_array_equal(wrapped_step.terminated, step.terminated)
    np.testing.assert_array_equal(wrapped_step.truncated, step.truncated)
    return first, wrapped_first, actions, step, wrapped_step, last


@pytest.mark.parametrize("num_frames", [1, 4])
@pytest.mark.parametrize(("name", "params"), SHORT)
def test_frame_stack(name, params, num_frames):
    env = envs.make(name, **params)
    first, stacked_first, _, step, stacked, last = same_play(env, frame_stack(env, num_frames))

    frames = deque([first] * num_frames, maxlen=num_frames)
    np.testing.assert_allclose(stacked_first, np.stack(frames, axis=-1), atol=1e-6)
    for t in range(len(last)):
        frames.append(step.next_obs[t])
        np.testing.assert_allclose(stacked.next_obs[t], np.stack(frames, axis=-1), atol=1e-5)
        if last[t]:
            frames.extend([step.obs[t]] * num_frames)
        np.testing.assert_allclose(stacked.obs[t], np.stack(frames, axis=-1), atol=1e-5)


@pytest.mark.parametrize(("name", "params"), SHORT)
def test_show_last(name, params):
    env = envs.make(name, **params)
    first, shown_first, actions, step, shown, last = same_play(env, show_last(env))

    np.testing.assert_allclose(shown_first, [*first, 0, 0, 0], atol=1e-6)
    for t in range(len(last)):
        consequence = [*step.next_obs[t], float(actions[t] == 0), float(actions[t] == 1), step.reward[t]]
        np.testing.assert_allclose(shown.next_obs[t], consequence, atol=1e-5)
        np.testing.assert_allclose(shown.obs[t], [*step.obs[t], 0, 0, 0] if last[t] else consequence, atol=1e-5)
    assert set(actions) == {0, 1} and step.reward.any()


def test_show_last_flattens_images():
    env = envs.make("Catch-bsuite")
    obs, actions, step = play(env, num_steps=12)
    shown_obs, _, shown = play(show_last(env), num_steps=12)
    np.testing.assert_array_equal(shown_obs, [*obs.reshape(50), 0, 0, 0, 0])
    np.testing.assert_array_equal(shown.next_obs[:, :50], step.next_obs.reshape(12, 50))
    np.testing.assert_array_equal(shown.next_obs[:, 50:53], np.eye(3)[actions])
    np.testing.assert_array_equal(shown.next_obs[:, 53], step.reward)
    assert step.terminated.any() and shown.obs.dtype == np.float32


def test_spaces():
    cartpole = envs.make("CartPole-v1")
    low, high = cartpole.observation_space.low, cartpole.observation_space.high
    shown = show_last(cartpole).observation_space
    assert (shown.shape, shown.dtype) == ((7,), jnp.float32)
    np.testing.assert_array_equal(shown.low, [*low, 0, 0, -np.inf])
    np.testing.assert_array_equal(shown.high, [*high, 1, 1, np.inf])
    stacked = frame_stack(cartpole, 3).observation_space
    assert stacked.shape == (4, 3)
    np.testing.assert_array_equal(np.broadcast_to(stacked.high, (4, 3)), np.stack([high] * 3, axis=-1))
    assert frame_stack(envs.make("Catch-bsuite"), 2).observation_space == Box(
        False, True, (10, 5, 2), jnp.dtype(bool), 2
    )
    assert frame_stack(envs.make("Breakout-MinAtar"), 2).observation_space.shape == (10, 10, 4, 2)


def test_num_frames_is_that_of_the_last_axis():
    env = envs.make("CartPole-v1")
    assert env.observation_space.num_frames == 1
    assert frame_stack(env, 3).observation_space.num_frames == 3
    assert show_last(frame_stack(env, 3)).observation_space.num_frames == 1


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("CartPole-v1", {"frame_stack": 4}),
        ("CartPole-v1", {"show_last": 1}),
        ("CartPole-v1", {"show_last": 1, "frame_stack": 2}),
        ("probe/constant-reward", {"show_last": 1, "frame_stack": 4, "max_steps": 3}),
        ("Pendulum-v1", {"frame_stack": 2}),
        ("Catch-bsuite", {"frame_stack": 3}),
        ("Catch-bsuite", {"show_last": 1}),
    ],
)
def test_contract(name, params):
    envs.check_env(envs.make(name, **params), num_steps=64)


def test_parameters_can_be_vmapped():
    def one(max_speed):
        env = envs.make("MountainCar-v0", max_speed=max_speed, show_last=1, frame_stack=2)
        env_state, _ = env.reset(jax.random.key(0))
        step = env.step(env.noise(jax.random.key(1), ()), env_state, jnp.int32(2))[1]
        return step.next_obs, env.observation_space.high

    next_obs, high = jax.jit(jax.vmap(one))(jnp.array([0.0001, 0.07]))
    np.testing.assert_allclose(high[:, 1, 0], [0.0001, 0.07], rtol=1e-6)
    np.testing.assert_allclose(next_obs[0, 1, 1], 0.0001, rtol=1e-6)
    np.testing.assert_array_equal(next_obs[:, 2:, 0], 0)
    np.testing.assert_array_equal(next_obs[:, 2:, 1], [[0, 0, 1, -1]] * 2)


def test_make_wraps_in_order():
    env = envs.make("CartPole-v1", frame_stack=3, show_last=1, gravity=9.0)
    assert (env.observation_space.shape, env.observation_space.num_frames) == ((7, 3), 3)
    env = envs.make("Catch-bsuite", **parsing.env_params(["frame_stack=4", "rows=6"]))
    assert (env.observation_space.shape, env.observation_space.num_frames) == ((6, 5, 4), 4)


@pytest.mark.parametrize(
    ("name", "params", "line"),
    [
        ("CartPole-v1", {"frame_stack": 0}, "env = 'CartPole-v1': frame_stack = 0: must be a whole number >= 1"),
        ("CartPole-v1", {"frame_stack": 2.5}, "env = 'CartPole-v1': frame_stack = 2.5: must be a whole number >= 1"),
        ("CartPole-v1", {"frame_stack": True}, "env = 'CartPole-v1': frame_stack = True: must be a whole number >= 1"),
        ("CartPole-v1", {"show_last": 0}, "env = 'CartPole-v1': show_last = 0: must be the whole number 1"),
        ("CartPole-v1", {"show_last": 1.0}, "env = 'CartPole-v1': show_last = 1.0: must be the whole number 1"),
        ("Pendulum-v1", {"show_last": 1}, "env = 'Pendulum-v1': has Box actions; show_last needs Discrete actions"),
    ],
)
def test_make_explains_itself(name, params, line):
    with pytest.raises(ConfigError) as error:
        envs.make(name, **params)
    assert str(error.value) == line


@pytest.mark.parametrize("wrapper", [show_last, lambda env: frame_stack(env, 2)])
def test_discrete_observations_are_refused(wrapper):
    env = envs.make("CartPole-v1")._replace(observation_space=Discrete(5))
    with pytest.raises(
        ConfigError, match="^env = 'CartPole-v1': has Discrete observations; .* needs Box observations$"
    ):
        wrapper(env)


def test_reserved_parameters_belong_to_no_environment():
    reserved = {name for name, p in inspect.signature(envs.make).parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert reserved == {"mask_nonfinite", "show_last", "frame_stack"}
    for name in (name for name in envs.names() if name.partition("/")[0] not in EXTRAS):
        if name in {**NATIVE, **PROBES}:
            own = set(inspect.signature(envs._native(name)).parameters)
        else:
            environment, params = gymnax.make(name.removeprefix("gymnax/"))
            own = set(inspect.signature(type(environment).__init__).parameters)
            own |= {field.name for field in dataclasses.fields(params)}
        assert not own & reserved
