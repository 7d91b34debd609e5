"""Atari's preprocessing as one parameter, and EnvPool; those that need a library are left out where it is not there."""

import gymnasium
import host_envs
import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.hosts import atari, making
from purerl.hosts.lives import Lives


class Game(gymnasium.Env):
    """A game of three lives, of which each third step costs one."""

    def __init__(self):
        self.observation_space, self.action_space = host_envs.spaces.Box(0, 99), host_envs.spaces.Discrete(2)
        self.ale, self.time = self, 0

    def lives(self):
        return 3 - self.time // 3

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time), 1.0, self.lives() == 0, False, {}


def test_lost_lives_terminate_and_the_game_goes_on():
    env = Lives(Game())
    env.reset(seed=0)
    ends = []
    for _ in range(14):
        obs, _, terminated, truncated, _ = env.step(1)
        ends.append((int(obs[0]), terminated))
        if terminated:
            env.reset()
    third = [(3, True), (5, False), (6, True), (8, False), (9, True)]
    assert ends == 2 * [(1, False), (2, False), *third]
    env.reset(seed=1)
    assert env.step(1)[0] == 1


def test_what_atari_stands_for():
    params = {"atari": 1, "life_loss": 1, "frame_skip": 2}
    options = atari.envpool_options("envpool/Pong-v5", params)
    assert (options["frame_skip"], options["episodic_life"], options["stack_num"], options["noop_max"]) == (
        2,
        True,
        1,
        30,
    )
    assert options["max_episode_steps"] == 27_000 and not set(atari.OWN) & set(options)
    assert atari.settings("envpool/Pong-v5", {"atari": 1, "frame_stack": 2}) == {
        "atari": 1,
        "reward_clip": 1,
        "frame_stack": 2,
    }
    assert atari.settings("envpool/Pong-v5", {"action_repeat": 2}) == {"action_repeat": 2}
    assert atari.envpool_options("envpool/Pong-v5", {"stack_num": 2}) == {"stack_num": 2}


@pytest.mark.parametrize(
    ("params", "words"),
    [({"atari": 2}, "atari = 2:"), ({"life_loss": 1}, "life_loss = 1:")],
)
def test_what_cannot_be_is_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        atari.envpool_options("envpool/Pong-v5", params)


@pytest.mark.parametrize("name", ["envpool/Pong-v5", "gymnasium/ALE/Pong-v5"])
def test_pong(name):
    pytest.importorskip("envpool" if "envpool" in name else "ale_py")
    env = making.make(name, {"atari": 1, "max_episode_steps": 3})
    batch = env.batch(2)
    (first,) = batch.reset(np.arange(2))
    assert (first.shape, first.dtype, env.observation_space.shape) == ((2, 84, 84), np.uint8, (84, 84))
    turns = [batch.step(np.zeros(2, int)) for _ in range(4)]
    assert [turn.truncated.all() for turn in turns] == [False, False, True, False]
    batch.close()
    pictured = env.pictured(1)
    pictured.reset(np.arange(1))
    assert pictured.frame(0).shape == (210, 160, 3)
    pictured.close()
