"""The transforms of the host against the wrappers of their names, around two writings of one environment."""

import fleets
import host_envs
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.envs import wrappers
from purerl.envs.episodic import episodic, one_level
from purerl.errors import ConfigError
from purerl.hosts import making
from purerl.spaces import Box, Discrete

STEPS = 40


def script_in_jax(length=5, nan=-1, unpaid=-1):
    """`host_envs.Script` as an `Env`."""

    def dynamics(physical, action):
        time = physical[0] + 1
        reward = jnp.where(time == unpaid, jnp.inf, 10.0 * time + action)
        return jnp.stack([time, action.astype(jnp.float32)]), reward, time >= length

    return episodic(
        "script",
        levels=one_level,
        initial=lambda level: jnp.zeros(2),
        dynamics=dynamics,
        observe=lambda physical: jnp.where((physical[0] == nan) & (jnp.arange(2) == 0), jnp.nan, physical),
        time_limit=10**6,
        observation_space=Box(-jnp.inf, jnp.inf, (2,), jnp.float32),
        action_space=Discrete(3),
    )


@pytest.mark.parametrize(
    ("transforms", "params"),
    [
        ({"max_episode_steps": 5}, {}),
        ({"action_repeat": 3, "max_episode_steps": 2}, {"length": 5}),
        ({"mask_nonfinite": 1}, {"unpaid": 2}),
        ({"mask_nonfinite": 1, "action_repeat": 2}, {"nan": 4}),
        ({"sticky_actions": 1, "action_repeat": 2, "max_episode_steps": 2}, {"length": 7}),
    ],
)
def test_transforms_mean_what_the_wrappers_do(transforms, params):
    wrapped = script_in_jax(**params)
    for name, value in transforms.items():
        wrapped = wrappers.TRANSFORMS[name](wrapped, value)
    actions = np.random.default_rng(0).integers(0, 3, (STEPS, 2))
    first, _, _, seen, step = fleets.play(wrapped, 2, STEPS, actions=actions)

    batch = making.make("host_envs:script", {**params, **transforms}).batch(2)
    np.testing.assert_array_equal(batch.reset(np.arange(2))[0], first)
    turns = [batch.step(action) for action in actions]
    assert step.terminated.any() or step.truncated.any()
    for result, expected in (
        ([turn.next_obs[0] for turn in turns], step.next_obs),
        ([turn.reward for turn in turns], step.reward),
        ([turn.terminated for turn in turns], step.terminated),
        ([turn.truncated for turn in turns], step.truncated),
        ([turn.obs[0] for turn in turns], seen),
    ):
        np.testing.assert_array_equal(result, expected)


def executed(num_envs, seeds, probability=0.25, steps=2000, **params):
    """Actions given and executed ``[T, B]``, and whether an episode began before."""
    given = np.random.default_rng(1).integers(0, 3, (steps, num_envs))
    batch = making.make("host_envs:script", {"length": 100, "sticky_actions": probability, **params}).batch(num_envs)
    batch.reset(np.asarray(seeds))
    turns = [batch.step(action) for action in given]
    return given, np.stack([turn.next_obs[0][:, 1] for turn in turns]).astype(int), np.stack([t.last for t in turns])


def test_actions_stick_with_their_probability():
    given, done, last = executed(4, [1, 2, 3, 4])
    may_stick = (given[1:] != done[:-1]) & ~last[:-1]
    stuck = done[1:] == done[:-1]
    rate = (stuck & may_stick).sum() / may_stick.sum()
    assert abs(rate - 0.25) < 4 * np.sqrt(0.25 * 0.75 / may_stick.sum())
    np.testing.assert_array_equal(done[1:][last[:-1]], given[1:][last[:-1]])


def test_each_row_sticks_by_its_own_seed():
    together = executed(2, [5, 9], steps=1500)[1]
    given = np.random.default_rng(1).integers(0, 3, (1500, 2))
    batch = making.make("host_envs:script", {"length": 100, "sticky_actions": 0.25}).batch(1)
    batch.reset(np.array([9]))
    alone = [batch.step(action[1:]).next_obs[0][0, 1] for action in given]
    np.testing.assert_array_equal(together[:, 1], alone)


def test_the_array_of_cartpoles_repeats_as_the_single_ones_do():
    actions = np.random.default_rng(0).integers(0, 2, (60, 3))
    results = []
    for vector in (0, 1):
        params = {"vector": vector, "action_repeat": 3, "max_episode_steps": 7, "sticky_actions": 0.5}
        batch = making.make("gymnasium/CartPole-v1", params).batch(3)
        results.append([batch.reset(np.arange(3))[0], *[x for a in actions for x in batch.step(a)[1:4]]])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_cannot_be_put_around_is_refused(monkeypatch):
    monkeypatch.setattr(host_envs, "script", lambda: host_envs.Nested(Box01, host_envs.spaces.Discrete(3), masked=True))
    with pytest.raises(ConfigError, match="has illegal actions, which sticky_actions would repeat"):
        making.make("host_envs:script", {"sticky_actions": 0.1})
    making.make("host_envs:script", {"max_episode_steps": 3})


Box01 = host_envs.spaces.Box(0, 1)
