"""``--env-params NAME=VALUE``: how values are read, and that they arrive as they were given."""

import json
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from purerl import cli, envs
from purerl.catalogue import fitted
from purerl.cli import ranges
from purerl.errors import ConfigError
from purerl.hosts import making
from purerl.runs.describing.config_file import ConfigFile
from purerl.runs.describing.description import env_options
from purerl.runs.describing.options import env_params

CASES = {
    "hard": "hard",
    "8x8": "8x8",
    "": None,
    "null": None,
    "true": True,
    "False": False,
    "no": "no",
    "off": "off",
    "7": 7,
    "08": 8,
    "1:30": "1:30",
    "1_000": 1000,
    "4_4": "4_4",
    "3000000000": 3_000_000_000,
    "1e3": 1000.0,
    "-.5": -0.5,
    "2026-11-27": "2026-11-27",
    '"7"': "7",
    "[1, a, true, null]": [1, "a", True, None],
    "{low: 1.5}": {"low": 1.5},
    "a, b": "a, b",
    "http://x:80": "http://x:80",
}


class Seen(gymnasium.Env):
    """Keeps what it was given, under names that functions of purerl's have as well."""

    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)
    given: list = []

    def __init__(self, name=None, mode="easy", slippery=True, size=5, **more):
        self.given.append((name, mode, slippery, size, more))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setitem(sys.modules, "seen", sys.modules[__name__])
    Seen.given.clear()
    return Seen.given


@pytest.mark.parametrize("text", CASES)
def test_values_are_read_as_yaml_has_them(text):
    (value,) = env_params([f"x={text}"]).values()
    assert value == CASES[text] and type(value) is type(CASES[text])


def test_a_run_gives_its_values_back():
    params = {f"x{i}": value for i, value in enumerate(CASES.values())} | {"quoted": "true", "list": "[1", "none": ""}
    file = ConfigFile("config.json", "train", {"env_params": json.loads(json.dumps(params))}, {}, [])
    pairs = env_options(file)["env_params"]
    assert env_params(pairs) == params and pairs[0] == "x0=hard"


def test_names_that_are_text_and_counts_stay_so():
    given = ["observation_mask=1", "resets=pool:4", "max_episode_steps=1e3", "randomise=length:0.4:0.6"]
    assert env_params(given) == {
        "observation_mask": "1",
        "resets": "pool:4",
        "max_episode_steps": 1000,
        "randomise": "length:0.4:0.6",
    }


@pytest.mark.parametrize("pair", ["x=[1", "x={a: .nan}", "x={1: 2}", "x=[!!binary aGk=]", "=1", "x"])
def test_what_is_no_value_is_refused(pair):
    with pytest.raises(ConfigError, match="^env_params = [^\n]*$"):
        env_params([pair])


def test_only_numbers_are_ranges():
    args = ["gravity=1,2", "k2=1:3:lin:2", "mode=hard,soft", "where=C:/x", "sizes=[1,2]", 'time="1:30"']
    rest, swept = ranges.extract(args, [], "env.")
    assert swept == {"env.gravity": "1,2", "env.k2": "1:3:lin:2"} and rest == args[2:]


def test_values_arrive(seen):
    params = ["name=x", "mode=hard", "slippery=false", "size=7", "big=3000000000", "sizes=[1, 2]", "no=null"]
    envs.make("seen:Seen", **env_params(params))
    more = {"big": 3000000000, "sizes": [1, 2], "no": None, "render_mode": None}
    assert seen and all(given == ("x", "hard", False, 7, more) and given[2] is False for given in seen)


@pytest.mark.parametrize(
    ("env", "pair", "line"),
    [
        ("CartPole-v1", "gravity=high", "gravity = 'high':"),
        ("CartPole-v1", "gravity=true", "gravity = True:"),
        ("CartPole-v1", "max_steps=[1]", r"max_steps = \[1\]:"),
        ("CartPole-v1", "gravity=3000000000", "gravity = 3000000000:"),
        ("Asterix-MinAtar", "ramping=maybe", "ramping = 'maybe':"),
        ("Catch-bsuite", "rows=many", "rows = 'many': must be a number, such as 10"),
        ("CartPole-v1", "reward_scale=[1]", r"reward_scale = \[1\]:"),
    ],
)
def test_native_environments_take_numbers(env, pair, line):
    with pytest.raises(ConfigError, match=line) as error:
        envs.make(env, **env_params([pair]))
    assert "\n" not in str(error.value)


def test_whole_numbers_fit():
    assert fitted("env", {"a": 10.0, "b": True, "c": 2.5, "d": 1}, {"a": 3, "b": 0, "c": 1, "d": 0.5}) == {
        "a": 10,
        "b": 1,
        "c": 2.5,
        "d": 1,
    }
    assert envs.make("CartPole-v1", flatten=True, hide_velocity=True).observation_space.shape == (2,)


def test_make_of_gymnasium_is_given_its_own():
    lake = {"is_slippery": False, "map_name": "8x8"}
    for given, length in (
        ({"max_episode_steps": 150}, 150),
        ({"max_episode_steps": 60, "action_repeat": 2}, 60),
        ({}, 100),
    ):
        batch = making.make("gymnasium/FrozenLake-v1", lake | given | {"disable_env_checker": False}).batch(1)
        batch.reset(np.zeros(1, int))
        lengths = [t for t in range(1, length + 2) if batch.step(np.zeros(1, int)).truncated[0]]
        batch.close()
        assert lengths == [length]


def limited(steps=5):
    return gymnasium.wrappers.TimeLimit(Seen(), steps)


def counted(num_envs=3):
    return Seen(size=num_envs)


@pytest.mark.parametrize(
    ("name", "params", "line"),
    [
        (
            "limited",
            {"max_episode_steps": 9},
            "max_episode_steps = 9: has no effect, since a TimeLimit .* after 5 steps",
        ),
        ("counted", {}, "num_envs = 3:"),
        ("counted", {"num_envs": 4}, "num_envs = 4:"),
    ],
)
def test_what_would_have_no_effect_is_told(name, params, line, seen):
    with pytest.raises(ConfigError, match=line):
        making.make(f"seen:{name}", params)
    making.make("seen:limited", {"max_episode_steps": 5})


def test_commands_take_them(seen, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["check-env", "seen:Seen", "--steps", "4", "--env-params", "mode=hard", "size=[3]", "--json"])
    assert json.loads(capsys.readouterr().out)["env"] == "seen:Seen" and seen[0][1:4] == ("hard", True, [3])
