"""Transforms against a plain Python simulation of what they wrap; the reserved parameters of `make`."""

import dataclasses
import inspect
import sys
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import fleets
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.catalogue import EXTRAS, NATIVE, PROBES, TEXTS
from purerl.envs.agents import joint
from purerl.envs.episodic import box, episodic
from purerl.envs.union import union
from purerl.envs.wrappers import (
    TRANSFORMS,
    action_repeat,
    flatten,
    frame_stack,
    led,
    mask_nonfinite,
    max_episode_steps,
    messages,
    observation_mask,
    randomise,
    reward_clip,
    reward_scale,
    show_last,
    sticky_actions,
)
from purerl.envs.wrappers.talk import Channel, Goal
from purerl.errors import ConfigError
from purerl.runs.describing.options import env_params
from purerl.spaces import Box, Discrete, MultiDiscrete, sample
from purerl.types import Env

POLE, ILLEGAL = "env = 'CartPole-v1':", "env = 'probe/illegal-actions': has illegal actions, which"
INDICES = "must be different whole numbers >= 0, separated by commas"
SHORT = [
    ("CartPole-v1", {"max_steps": 13}),
    ("probe/constant-reward", {"reward": 2.5, "max_steps": 3}),
    ("probe/discount-two-steps", {}),
    ("probe/obs-action-match", {}),
]
"""Episodes that end and are cut off, those of the probes sooner than a stack is full."""


def play(env, num_steps=60):
    """Random play of one environment: the first observation, actions, what is seen after and Steps ``[T, ...]``."""
    first, _, *rest = fleets.play(env, 1, num_steps)
    return first[0], *jax.tree.map(lambda x: x[:, 0], tuple(rest))


def same_play(env, wrapped):
    """Plays both alike: first observations, the actions, and of both what is seen after and Steps, which agree in all
    but observations."""
    (first, actions, seen, step), (wrapped_first, _, wrapped_seen, wrapped_step) = play(env), play(wrapped)
    last = step.terminated | step.truncated
    assert last.any() and not last.all() or env.name.endswith("match")
    np.testing.assert_array_equal(wrapped_step.reward, step.reward)
    np.testing.assert_array_equal(wrapped_step.terminated, step.terminated)
    np.testing.assert_array_equal(wrapped_step.truncated, step.truncated)
    return first, wrapped_first, actions, (seen, step), (wrapped_seen, wrapped_step), last


@pytest.mark.parametrize("num_frames", [1, 4])
@pytest.mark.parametrize(("name", "params"), SHORT)
def test_frame_stack(name, params, num_frames):
    env = envs.make(name, **params)
    first, stacked_first, _, (seen, step), (stacked_seen, stacked), last = same_play(env, frame_stack(env, num_frames))

    frames = deque([first] * num_frames, maxlen=num_frames)
    np.testing.assert_allclose(stacked_first, np.stack(frames, axis=-1), atol=1e-6)
    for t in range(len(last)):
        frames.append(step.next_obs[t])
        np.testing.assert_allclose(stacked.next_obs[t], np.stack(frames, axis=-1), atol=1e-5)
        if last[t]:
            frames.extend([seen[t]] * num_frames)
        np.testing.assert_allclose(stacked_seen[t], np.stack(frames, axis=-1), atol=1e-5)


@pytest.mark.rest
@pytest.mark.parametrize(("name", "params"), SHORT)
def test_show_last(name, params):
    env = envs.make(name, **params)
    first, shown_first, actions, (seen, step), (shown_seen, shown), last = same_play(env, show_last(env))

    np.testing.assert_allclose(shown_first, [*first, 0, 0, 0], atol=1e-6)
    for t in range(len(last)):
        consequence = [*step.next_obs[t], float(actions[t] == 0), float(actions[t] == 1), step.reward[t]]
        np.testing.assert_allclose(shown.next_obs[t], consequence, atol=1e-5)
        np.testing.assert_allclose(shown_seen[t], [*seen[t], 0, 0, 0] if last[t] else consequence, atol=1e-5)
    assert set(actions) == {0, 1} and step.reward.any()


@pytest.mark.rest
def test_show_last_flattens_images():
    env = envs.make("Catch-bsuite")
    obs, actions, _, step = play(env, num_steps=12)
    shown_obs, _, seen, shown = play(show_last(env), num_steps=12)
    np.testing.assert_array_equal(shown_obs, [*obs.reshape(50), 0, 0, 0, 0])
    np.testing.assert_array_equal(shown.next_obs[:, :50], step.next_obs.reshape(12, 50))
    np.testing.assert_array_equal(shown.next_obs[:, 50:53], np.eye(3)[actions])
    np.testing.assert_array_equal(shown.next_obs[:, 53], step.reward)
    assert step.terminated.any() and seen.dtype == np.float32


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


@pytest.mark.weekly
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
        ("CartPole-v1", {"randomise": "length:0.4:0.6,gravity:8:12", "max_episode_steps": 9, "flatten": 1}),
        ("CartPole-v1", {"sticky_actions": 0.25, "action_repeat": 3, "resets": "pool:4", "mask_nonfinite": 1}),
        ("Pendulum-v1", {"max_episode_steps": 5, "resets": "few:4", "reward_scale": 0.1, "observation_mask": 2}),
        ("Pendulum-v1", {"randomise": "max_torque:1:3,max_speed:5:9", "action_repeat": 2, "reward_clip": 1}),
        ("probe/dict-obs", {"flatten": 1, "sticky_actions": 0.5, "frame_stack": 2}),
        ("gymnax/CartPole-v1", {"randomise": "gravity:8:12", "resets": "pool:4"}),
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
    assert list(TRANSFORMS)[:5] == [
        "resets",
        "mask_nonfinite",
        "sticky_actions",
        "action_repeat",
        "max_episode_steps",
    ]
    env = envs.make("CartPole-v1", frame_stack=3, show_last=1, gravity=9.0)
    assert (env.observation_space.shape, env.observation_space.num_frames) == ((7, 3), 3)
    env = envs.make("CartPole-v1", observation_mask="0,1", flatten=1, frame_stack=None)
    np.testing.assert_allclose(env.observation_space.high[0], 2 * np.radians(12), rtol=1e-6)
    env = envs.make("Catch-bsuite", **env_params(["frame_stack=4", "rows=6"]))
    assert (env.observation_space.shape, env.observation_space.num_frames) == ((6, 5, 4), 4)


@pytest.mark.parametrize(
    ("name", "params", "line"),
    [
        ("CartPole-v1", {"frame_stack": 0}, "env = 'CartPole-v1': frame_stack = 0:"),
        ("CartPole-v1", {"frame_stack": 2.5}, "env = 'CartPole-v1': frame_stack = 2.5:"),
        ("CartPole-v1", {"frame_stack": True}, "env = 'CartPole-v1': frame_stack = True:"),
        ("CartPole-v1", {"show_last": 0}, "env = 'CartPole-v1': show_last = 0:"),
        ("CartPole-v1", {"show_last": 1.0}, "env = 'CartPole-v1': show_last = 1.0:"),
        ("Pendulum-v1", {"show_last": 1}, "env = 'Pendulum-v1': has Box actions"),
        ("CartPole-v1", {"resets": "pool:0"}, f"{POLE} resets = 'pool:0':"),
        ("CartPole-v1", {"resets": "pool"}, f"{POLE} resets = 'pool':"),
        ("CartPole-v1", {"action_repeat": 2.0}, f"{POLE} action_repeat = 2.0:"),
        ("CartPole-v1", {"max_episode_steps": 0}, f"{POLE} max_episode_steps = 0:"),
        ("CartPole-v1", {"sticky_actions": 1.5}, f"{POLE} sticky_actions = 1.5:"),
        ("CartPole-v1", {"sticky_actions": True}, f"{POLE} sticky_actions = True:"),
        ("CartPole-v1", {"sticky_actions": np.nan}, f"{POLE} sticky_actions = nan: must be finite in float32"),
        ("CartPole-v1", {"reward_scale": 0}, f"{POLE} reward_scale = 0:"),
        ("CartPole-v1", {"reward_clip": -1.0}, f"{POLE} reward_clip = -1.0:"),
        ("CartPole-v1", {"flatten": 2}, f"{POLE} flatten = 2:"),
        ("CartPole-v1", {"observation_mask": "1,x"}, f"{POLE} observation_mask = '1,x': {INDICES}"),
        ("CartPole-v1", {"observation_mask": "1,1"}, f"{POLE} observation_mask = '1,1': {INDICES}"),
        ("CartPole-v1", {"observation_mask": (-1,)}, f"{POLE} observation_mask = (-1,): {INDICES}"),
        ("CartPole-v1", {"observation_mask": 4}, f"{POLE} observation_mask = '4':"),
        ("CartPole-v1", {"observation_mask": "0,1,2,3"}, f"{POLE} observation_mask = '0,1,2,3':"),
        (
            "Catch-bsuite",
            {"observation_mask": 0},
            "env = 'Catch-bsuite': observation_mask = '0': observations [10,",
        ),
        ("CartPole-v1", {"randomise": "length"}, f"{POLE} randomise = 'length':"),
        ("CartPole-v1", {"randomise": "length:2:1"}, f"{POLE} randomise = 'length:2:1':"),
        ("CartPole-v1", {"randomise": "tau:1:2,tau:1:3"}, f"{POLE} randomise = 'tau:1:2,tau:1:3':"),
        ("CartPole-v1", {"randomise": 3}, f"{POLE} randomise = 3:"),
        ("CartPole-v1", {"randomise": "lenth:1:2"}, f"{POLE} unknown parameter lenth; nearest: length"),
        ("CartPole-v1", {"randomise": "tau:0:inf"}, f"{POLE} tau = inf: must be finite in float32"),
        (
            "CartPole-v1",
            {"randomise": "hide_velocity:0:1"},
            f"{POLE} randomise: hide_velocity: cannot be drawn (",
        ),
        (
            "CartPole-v1",
            {"randomise": "tau:1:2", "tau": 1.0},
            f"{POLE} tau is given as a number and drawn",
        ),
        ("probe/illegal-actions", {"sticky_actions": 0.1}, f"{ILLEGAL} sticky_actions would repeat"),
        ("probe/illegal-actions", {"action_repeat": 2}, f"{ILLEGAL} action_repeat would repeat"),
        ("probe/illegal-actions", {"flatten": 1}, f"{ILLEGAL} flatten would hide"),
        ("probe/illegal-actions", {"observation_mask": 1}, f"{ILLEGAL} observation_mask would hide"),
    ],
)
def test_make_explains_itself(name, params, line):
    with pytest.raises(ConfigError) as error:
        envs.make(name, **params)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda env: sticky_actions(env, 0.5),
        lambda env: action_repeat(env, 2),
        lambda env: max_episode_steps(env, 2),
        lambda env: randomise("walk", lambda **_: env, {"x": (0, 1)}),
        lambda env: messages(env, Channel(1, 1, 1.0), lambda obs: obs),
    ],
)
def test_several_agents_are_refused(wrapper):
    with pytest.raises(ConfigError, match="^env = 'walk': has 3 agents"):
        wrapper(walk()._replace(num_agents=3))


@pytest.mark.parametrize("wrapper", [show_last, lambda env: frame_stack(env, 2)])
def test_discrete_observations_are_refused(wrapper):
    env = envs.make("CartPole-v1")._replace(observation_space=Discrete(5))
    with pytest.raises(
        ConfigError, match="^env = 'CartPole-v1': has Discrete observations; .* needs Box observations$"
    ):
        wrapper(env)


def test_reserved_parameters_belong_to_no_environment():
    reserved = {"randomise", *TRANSFORMS}
    assert set(TEXTS) - {"game", "opponent"} < reserved
    for name in (name for name in envs.names() if name.partition("/")[0] not in EXTRAS):
        if name in {**NATIVE, **PROBES}:
            own = set(inspect.signature(envs._native(name)).parameters)
        else:
            environment, params = gymnax.make(name.removeprefix("gymnax/"))
            own = set(inspect.signature(type(environment).__init__).parameters)
            own |= {field.name for field in dataclasses.fields(params)}
        assert not own & reserved


def test_parameters_of_the_same_name_are_the_environments_own(monkeypatch):
    seen = []
    mine = lambda *, action_repeat=1, **more: seen.append((action_repeat, more)) or walk()
    monkeypatch.setitem(sys.modules, "wrapped_own", SimpleNamespace(mine=mine))
    envs.make("wrapped_own:mine", action_repeat=5, reward_scale=2)
    assert seen[-1] == (5, {})  # an environment of the host would have been told of drawing
    assert {"action_repeat"} < set(envs._declared("brax/spring/ant"))
    assert not {"action_repeat"} & set(envs._declared("CartPole-v1"))


GOAL = Goal(1, 1, lambda key, shape: jax.random.uniform(key, (*shape, 1)), lambda obs: obs)

# A walk to the right, which is simple enough to be simulated by hand.


def walk(*, stride: float = 1.0, begin: float = 0.0) -> Env:
    """From 0, 1 or 2 strides beyond ``begin`` on; action ``a`` goes ``a`` strides, pays ``10 a`` plus the old position,
    and ends beyond 5; after 7 steps it is cut off."""
    return episodic(
        "walk",
        levels=lambda key, shape: jax.random.randint(key, (*shape, 1), 0, 3),
        initial=lambda level: begin + level * stride,
        dynamics=lambda x, action: (x + action * stride, 10.0 * action + x[0], x[0] + action * stride > 5),
        observe=lambda x: x,
        time_limit=7,
        observation_space=box((begin,), (begin + 14 * stride,)),
        action_space=Discrete(3),
    )


class Walk:
    """The same in Python: ``step`` gives the true next position, the reward and both flags, and begins anew."""

    def __init__(self, x):
        self.x, self.t = float(x), 0

    def step(self, level, action):
        reward, x, self.t = 10.0 * action + self.x, self.x + action, self.t + 1
        terminated, truncated = x > 5, self.t >= 7 and x <= 5
        self.x, self.t = (float(level[0]), 0) if terminated or truncated else (x, self.t)
        return x, reward, terminated, truncated


def recorded(env, num_steps=80, seed=0):
    """One environment's random play: the first observation, then noise, levels, actions, what is seen after and Steps
    ``[T, ...]``."""
    key_reset, key_noise, key_action = jax.random.split(jax.random.key(seed), 3)
    env_state, obs = env.reset(key_reset)
    drawn, actions = fleets.drawn(env, key_noise, (num_steps,)), sample(env.action_space, key_action, (num_steps,))
    alone = fleets.alone(env)

    def move(env_state, given):
        env_state, seen, step = alone(given[0], env_state, given[1])
        return env_state, (seen, step)

    return obs, *drawn, actions, *jax.lax.scan(move, env_state, (drawn, actions))[1]


def same_step(step, seen, t, next_obs, reward, terminated, truncated, obs):
    actual = step.next_obs[t, 0], step.reward[t], step.terminated[t], step.truncated[t], seen[t, 0]
    assert actual == (next_obs, reward, terminated, truncated, obs), f"step {t}"


def test_sticky_actions():
    """With probability 0, 0.5 and 1, in one program, since it may be traced."""
    many = jax.jit(jax.vmap(lambda p: recorded(sticky_actions(walk(), p))))(jnp.array([0.0, 0.5, 1.0]))
    firsts, noises, levels, actions, seens, steps = jax.device_get(many)
    for lane, probability in enumerate((0.0, 0.5, 1.0)):
        uniform, level, seen, step = jax.tree.map(lambda x, lane=lane: x[lane], (noises[1], levels, seens, steps))
        plain, last_action, repeated = Walk(firsts[lane, 0]), None, 0
        for t, action in enumerate(actions[lane]):
            if last_action is not None and uniform[t] < probability:
                repeated += action != last_action
                action = last_action
            after = plain.step(level[t], action)
            last_action = None if after[2] or after[3] else action
            same_step(step, seen, t, *after, plain.x)
        assert (repeated > 5) == (probability > 0)
        assert step.terminated.any()


def test_action_repeat():
    assert action_repeat(env := walk(), 1) is env
    first, _, level, actions, seen, step = jax.device_get(jax.jit(lambda: recorded(action_repeat(walk(), 3)))())
    plain, cut = Walk(first[0]), 0
    for t, action in enumerate(actions):
        total = 0.0
        for i in range(3):
            next_obs, reward, terminated, truncated = plain.step(level[t], action)
            total += reward
            if terminated or truncated:
                cut += i < 2
                break
        same_step(step, seen, t, next_obs, total, terminated, truncated, plain.x)
    assert cut > 3 and step.truncated.any() and step.terminated.any()


def test_max_episode_steps():
    """The limit of the walk itself, 7, cannot be met; a new beginning is what the environment gives for the level."""
    first, _, level, actions, seen, step = jax.device_get(jax.jit(lambda: recorded(max_episode_steps(walk(), 5)))())
    plain, time, both = Walk(first[0]), 0, 0
    for t, action in enumerate(actions):
        next_obs, reward, terminated, truncated = plain.step(level[t], action)
        time += 1
        cut = time == 5 and not terminated
        both += time == 5 and terminated
        if cut:
            plain = Walk(level[t, 0])
        time = 0 if cut or terminated else time
        same_step(step, seen, t, next_obs, reward, terminated, cut, plain.x)
        assert not truncated
    assert step.truncated.sum() > 5 and step.terminated.sum() > 2 and both


@pytest.mark.rest
def test_rewards():
    def play_scaled(scale, limit):
        return recorded(reward_clip(reward_scale(walk(), scale), limit))[-1].reward

    plain = recorded(walk())[-1].reward
    scaled = jax.jit(jax.vmap(play_scaled))(jnp.array([0.5, 2.0]), jnp.array([100.0, 15.0]))
    np.testing.assert_array_equal(scaled, [0.5 * plain, np.minimum(2.0 * plain, 15)])
    clipped = recorded(reward_clip(envs.make("Pendulum-v1"), 1e-6), 3)[-1].reward
    np.testing.assert_array_equal(clipped, np.full(3, -1e-6, np.float32))


def test_observation_mask():
    """Velocities hidden by indices are those that CartPole hides itself."""
    hidden = envs.make("CartPole-v1", hide_velocity=1, max_steps=13)
    masked = envs.make("CartPole-v1", observation_mask="1,3", max_steps=13)
    assert masked.observation_space.shape == hidden.observation_space.shape == (2,)
    np.testing.assert_array_equal(masked.observation_space.high, hidden.observation_space.high)
    first, first_masked, _, (seen, step), (seen_masked, step_masked), _ = same_play(hidden, masked)
    np.testing.assert_array_equal(first_masked, first)
    np.testing.assert_array_equal(seen_masked, seen)
    np.testing.assert_array_equal(step_masked.next_obs, step.next_obs)
    assert observation_mask(walk()._replace(observation_space=box((0, 0), (1, 1))), [0]).observation_space.shape == (1,)


def test_flatten():
    """Leaves in the order of their names; integers one-hot."""
    space = {"n": Discrete(3), "image": Box(0, 255, (2, 2), jnp.uint8), "moves": MultiDiscrete((2, 3))}
    obs = {"n": jnp.int32(2), "image": jnp.array([[1, 2], [3, 255]], jnp.uint8), "moves": jnp.array([1, 0])}
    env = flatten(walk()._replace(observation_space=space, begin=lambda level: ((), obs)))
    flat = env.reset(jax.random.key(0))[1]
    np.testing.assert_array_equal(flat, [1, 2, 3, 255, 0, 1, 1, 0, 0, 0, 0, 1])
    assert flat.dtype == jnp.float32 and env.observation_space.shape == (12,)
    np.testing.assert_array_equal(env.observation_space.low, np.zeros(12))
    np.testing.assert_array_equal(env.observation_space.high, [255] * 4 + [1] * 8)


def test_randomise():
    """Every step has the stride that its episode's level says, and an episode begins by its own parameters."""
    make = lambda: randomise("walk", walk, "stride:0.5:2,begin:-1:1")
    space = make().observation_space
    np.testing.assert_array_equal([space.low, space.high], [[-1], [29]])
    _, _, (drawn, level), actions, seen, step = jax.device_get(jax.jit(lambda: recorded(make(), 200))())
    fresh = drawn["begin"][:, None] + level * drawn["stride"][:, None]
    assert min(drawn["begin"]) < -0.9 and max(drawn["begin"]) > 0.9
    stride, x, strides = None, None, []
    for t, action in enumerate(actions):
        if stride is not None:
            np.testing.assert_allclose(step.next_obs[t, 0], x + stride * action, rtol=1e-5, atol=1e-5)
        x = seen[t, 0]
        if step.terminated[t] or step.truncated[t]:
            np.testing.assert_allclose(x, fresh[t, 0], rtol=1e-5, atol=1e-6)
            stride = drawn["stride"][t]
            strides.append(stride)
    assert len(strides) > 15 and min(strides) < 0.8 and max(strides) > 1.7


def test_randomised_parameters_are_uniform():
    env = randomise("walk", walk, {"stride": (0.5, 2.0)})
    drawn = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4000))[0].parameters["stride"]
    share = np.histogram(drawn, bins=5, range=(0.5, 2.0))[0] / 4000
    np.testing.assert_allclose(share, 0.2, atol=0.03)


@pytest.mark.parametrize("what", ["noise", "levels"])
def test_draws_may_not_depend_on_what_is_randomised(what):
    def make(*, spread):
        return walk()._replace(**{what: lambda key, shape: jax.random.uniform(key, (*shape, 1), maxval=spread)})

    with pytest.raises(ConfigError, match=f"^env = 'walk': randomise: spread: {what} depend on it, but must be drawn"):
        randomise("walk", make, "spread:1:2")


def counted():
    """A walk that counts its episodes."""
    env = walk()

    def begin(level):
        env_state, obs = env.begin(level)
        return Counted(env_state, jnp.zeros((), jnp.int32)), obs

    def step(noise, env_state, action):
        inner, made = env.step(noise, env_state.inner, action)
        return env_state._replace(inner=inner), made

    keep = lambda before, start: start._replace(episodes=before.episodes + 1)
    return env._replace(begin=begin, step=step, keep=keep)


class Counted(NamedTuple):
    inner: Any
    episodes: Any


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda env: sticky_actions(env, 0.5),
        lambda env: action_repeat(env, 2),
        lambda env: max_episode_steps(env, 2),
        mask_nonfinite,
        lambda env: frame_stack(env, 2),
        show_last,
        lambda env: randomise("walk", lambda **_: env, {"x": (0, 1)}),
        lambda env: led(env, Channel(1, 1, 1.0), lambda obs, goal: goal, GOAL),
        lambda env: union([walk(), env])(1),
        joint,
    ],
)
def test_what_a_new_episode_keeps_goes_through_wrappers(wrapper):
    """A count of episodes under every wrapper that holds a state or begins by itself."""
    states, *_, made = jax.tree.map(lambda x: x[:, 0], fleets.play(wrapper(counted()), 1, 30)[1:])
    count = next(x for path, x in jax.tree.leaves_with_path(states) if "episodes" in jax.tree_util.keystr(path))
    np.testing.assert_array_equal(count, np.concatenate([[0], np.cumsum(made.last)[:-1]]))
    assert count[-1] > 2


def test_an_environment_that_is_not_finite_is_cut_off():
    """Where it shows or pays what is not finite the step is a cut without a reward, to what was seen last."""
    for how in ("next_obs", "reward"):
        env = walk()

        def step(noise, env_state, action, env=env, how=how):
            after, made = env.step(noise, env_state, action)
            return after, made._replace(**{how: jnp.where(env_state.t == 3, jnp.nan, getattr(made, how))})

        first, _, _, _, seen, made = jax.jit(lambda step=step: recorded(mask_nonfinite(walk()._replace(step=step))))()
        before = np.concatenate([first[None], seen[:-1]])
        wrong = np.asarray(made.truncated)
        assert wrong.sum() > 5 and not np.any(made.terminated & wrong) and np.any(made.terminated)
        assert np.isfinite(made.next_obs).all() and np.isfinite(made.reward).all() and not np.any(made.reward[wrong])
        np.testing.assert_array_equal(made.next_obs[wrong], before[wrong])
        assert np.all(seen[wrong] <= 2) and np.all(np.diff(np.flatnonzero(wrong | made.terminated)) <= 4)


def test_randomised_environments_of_ones_own_are_swept(monkeypatch):
    """Another parameter is traced, and a whole one given."""
    monkeypatch.setitem(sys.modules, "wrapped_own", SimpleNamespace(walk=walk))

    def first(begin):
        env = envs.make("wrapped_own:walk", randomise="stride:0.5:2", begin=begin, resets="pool:5")
        return env.observation_space.low, jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 16))[1]

    low, obs = jax.jit(jax.vmap(first))(jnp.array([0.0, 100.0]))
    np.testing.assert_array_equal(low, [[0], [100]])
    np.testing.assert_allclose(obs[1], obs[0] + 100, atol=1e-4)


def test_resets():
    """Whatever wrappers are around it, an environment begins episodes as it is told."""
    env = envs.make("CartPole-v1", resets="pool:3", max_episode_steps=5, frame_stack=2)
    assert env.resets == "pool:3" and joint(env).resets == "pool:3" and envs.make("CartPole-v1").resets == "every"
    *_, seen, step = play(env, 100)
    last = step.terminated | step.truncated
    assert len(np.unique(seen[last], axis=0)) == 3 and last.sum() == 20
