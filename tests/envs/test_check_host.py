"""What `check_env` says of environments of the host."""

import gymnasium
import host_envs
import jax
import numpy as np
import pytest
from gymnasium import spaces

from purerl import ConfigError, envs
from purerl.envs.check_env import examine, picture_notes
from purerl.spaces import Box


def examined(name, **params):
    return examine(envs.make(name, **params), jax.random.key(0), 40, 3)


def test_cartpole_keeps_the_contract():
    result = examined("gymnasium/CartPole-v1")
    assert not result.problems and result.terminated > 0 == result.truncated
    assert result.notes[-1] == "no episode was truncated" and not any(
        "nothing is drawn" in note for note in result.notes
    )
    cut = examined("gymnasium/CartPole-v1", max_episode_steps=7)
    assert not cut.problems and cut.truncated > 0 == cut.terminated


def test_agents_keep_it():
    result = examined("host_envs:pair")
    assert not result.problems and result.terminated == 40 // 4 * 3 * 2
    assert "purerl render cannot render it" in result.notes


def test_games_of_the_host_keep_it():
    """Who says that it is a zero-sum game is looked at; boards can be filmed."""
    result = examined("hand_games:one_of_three_on_host")
    assert not result.problems
    assert "purerl render draws what its agent sees, because it draws no pictures" in result.notes
    line = "reward: zero_sum, but those of all agents do not add up to 0, first at step 1"
    assert line in examined("hand_games:lies_on_host").problems


@pytest.mark.parametrize(
    "name, params, line",
    [
        ("script", {"nan": 3}, "step: the observation of environment 0 is not finite, first at step 3"),
        (
            "script",
            {"unpaid": 2},
            "step: the reward of environment 0 is not finite: infinite, or too large for float32, first at step 2",
        ),
        ("faulty", {"fault": "space"}, "step's obs: leaves observation_space, first at step 5 (found 5)"),
        (
            "faulty",
            {"fault": "shape"},
            "step: environment 0: the observation has shape (3,), its space has (2,), first at step 4",
        ),
        ("faulty", {"fault": "seeds"}, "reset: the same seeds must give the same first observations"),
        (
            "faulty",
            {"fault": "mask"},
            "step: environment 0: no action is legal: action_mask is [0, 0, 0]; end the episode before, or let an"
            " action be legal, first at step 3",
        ),
        (
            "pair",
            {"reset_early": True},
            "step: where an episode ended next_obs was always the first observation of the next; must be the"
            " observation after the last action",
        ),
    ],
)
def test_a_broken_promise_is_told(name, params, line):
    env = envs.make(f"host_envs:{name}", **params)
    result = examine(env, jax.random.key(0), 12, 3)
    if params == {"fault": "space"}:  # the time that leaves it is the last of an episode
        line = line.replace("step's obs", "step's next_obs")
    assert line in result.problems
    with pytest.raises(ConfigError, match="must|step|reset|terminated"):
        envs.check_env(env, num_steps=12, num_envs=3)


class Pictures(host_envs.Script):
    def __init__(self, shape):
        super().__init__()
        self.observation_space = spaces.Dict({"x": spaces.Box(0, 255, shape, np.uint8), "t": spaces.Text(4)})

    def reset(self, *, seed=None, options=None):
        return self.seen(super().reset(seed=seed)[0]), {}

    def step(self, action):
        obs, *rest = super().step(action)
        return self.seen(obs), *rest

    def seen(self, obs):
        return {"x": np.full(self.observation_space["x"].shape, obs[0], np.uint8), "t": "go"}


def pictures():
    return Pictures((3, 8, 8))


def test_what_is_read_otherwise_is_told_once_and_noted(capsys, monkeypatch):
    monkeypatch.setattr(host_envs, "pictures", pictures, raising=False)
    result = examined("host_envs:pictures")
    envs.make("host_envs:pictures")
    told = [f"observation_space[{key!r}]" for key in "tx"]
    assert [line.partition(": ")[2].partition(":")[0] for line in capsys.readouterr().err.splitlines()] == told
    assert [note.partition(":")[0] for note in result.notes[:2]] == told and not result.problems


def test_pictures_of_your_own_with_channels_first_are_noted():
    first, last = (Box(0, 255, shape, np.uint8) for shape in ((3, 36, 36), (36, 36, 3)))
    env = envs.make("host_envs:pair")._replace(observation_space={"a": first, "b": last})
    (line,) = picture_notes(env)
    assert line.startswith(
        "observation_space['a']: uint8 [3, 36, 36] looks like images with channels first; is read as"
    )


def test_what_cannot_be_repeated_is_noted():
    result = examined("host_envs:faulty", fault="steps")
    assert not result.problems
    assert "the same seeds and actions lead to different steps: runs are not reproducible" in result.notes
    assert "every episode begins with the same observation" in result.notes


class Growing(host_envs.Script):
    """Each reset but the first grows the space; ``wrapped`` by a wrapper of one's own."""

    def reset(self, *, seed=None, options=None):
        if self.time:
            self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        return super().reset(seed=seed)


class Outside(gymnasium.Wrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed)

    def step(self, action):
        return self.env.step(action)


class Three(host_envs.Script):
    def step(self, action):
        return super().step(action)[:3]


@pytest.mark.parametrize(
    ("name", "make", "line"),
    [
        ("grows", lambda: Outside(Growing()), "step: environment 0: Growing.reset (test_check_host.py:"),
        ("three", lambda: Outside(Three()), "step: environment 0: Three.step (test_check_host.py:"),
    ],
)
def test_methods_that_return_something_else_are_named(name, make, line, monkeypatch):
    monkeypatch.setattr(host_envs, name, make, raising=False)
    (problem,) = examine(envs.make(f"host_envs:{name}"), jax.random.key(0), 12, 3).problems
    assert problem.startswith(line)
