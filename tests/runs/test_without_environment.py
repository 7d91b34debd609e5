"""A policy is read, acts and is exported where its environment is missing; a run plays with other parameters."""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run

import purerl
from purerl import envs, spaces
from purerl.envs import spaces_only
from purerl.errors import ConfigError
from purerl.types import Env, Step

SIZES = ["--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--eval-episodes", "2", "--workers", "none"]
MODULE = """
import gymnasium, numpy as np
from gymnasium import spaces

class Masked(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, size=3, reward=1.0, high=9.0, render_mode=None):
        self.observation_space = spaces.Dict(
            {"action_mask": spaces.MultiBinary(3), "seen": spaces.Box(-1, high, (size,), np.float32)}
        )
        self.action_space, self.size, self.reward, self.render_mode = spaces.Discrete(3), size, reward, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def show(self):
        return {"action_mask": np.array([0, 1, 1], np.int8), "seen": np.full(self.size, self.time, np.float32)}

    def step(self, action):
        self.time += 1
        return self.show(), self.reward, self.time == 5, False, {}

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in an environment of a module of its own, and the folder of the module."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_masked.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    run("train", "ppo", "--env", "own_masked:Masked", *SIZES, "--total-steps", "16", "--out", folder / "run")
    yield folder / "run"
    sys.path.remove(str(folder))
    sys.modules.pop("own_masked", None)


@pytest.fixture
def without(trained, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(trained.parent)])
    monkeypatch.delitem(sys.modules, "own_masked", raising=False)
    monkeypatch.chdir(tmp_path)
    return trained


def seen(rows):
    return {"action_mask": np.ones((rows, 3), np.int8), "seen": np.arange(3.0 * rows).reshape(rows, 3)}


@pytest.mark.rest
def test_a_policy_acts_without_the_module(trained, monkeypatch, tmp_path):
    actions = purerl.acting(trained, trust=True)(seen(8))
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(trained.parent)])
    monkeypatch.delitem(sys.modules, "own_masked")
    monkeypatch.chdir(tmp_path)
    loaded = purerl.load(trained)
    assert "its module cannot be found" in loaded.missing
    np.testing.assert_array_equal(purerl.acting(trained)(seen(8)), actions)
    masked = seen(8) | {"action_mask": np.eye(3, dtype=np.int8)[np.arange(8) % 3]}
    np.testing.assert_array_equal(purerl.acting(trained)(masked), np.arange(8) % 3)


@pytest.mark.rest
def test_a_policy_is_exported_without_the_module(without, tmp_path):
    run("export", without, "--to", "numpy", "--out", tmp_path / "exported")
    assert json.loads((tmp_path / "exported/policy.json").read_text())["env"] == "own_masked:Masked"


@pytest.mark.rest
@pytest.mark.parametrize("command", [["eval"], ["render"], ["record", "--overwrite"]])
def test_nothing_is_played_without_the_module(command, without, capsys):
    run(command[0], without, *command[1:], "--trust", expect=2)
    assert "cannot import own_masked" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cannot be found"):
        env = purerl.load(without).env
        jax.eval_shape(env.step, (), (), jnp.zeros((), jnp.int32))


@pytest.mark.rest
def test_a_run_plays_with_other_parameters(trained, capsys, tmp_path):
    capsys.readouterr()
    run("eval", trained, "--episodes", "2", "--json", "--env-params", "reward=3", "high=20", "max_episode_steps=4")
    assert json.loads(capsys.readouterr().out)["return_per_seed"] == [12.0]
    run("record", trained, "--episodes", "2", "--env-params", "reward=3", "--out", tmp_path / "data", "--json")
    card = json.loads(capsys.readouterr().out)
    assert card["return_mean"] == 15 and card["env_params"] == {"reward": 3}
    run("render", trained, "--env-params", "reward=3", "--out", tmp_path / "film.gif")
    assert "return 15" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("size=4", r"has observations.*\[4\].* but the policy was trained with observations .*\[3\]"),
        ("sise=4", "unknown parameter sise; nearest: size"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given, words, trained, capsys):
    for command in ("eval", "render"):
        run(command, trained, "--env-params", given, "--overwrite" if command == "render" else "--json", expect=2)
        error = capsys.readouterr().err
        assert error.count("purerl: error") == 1
        assert re.search(words, error)


def step(noise, env_state, action):
    return env_state, Step(jnp.zeros(2), jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))


def world(legal=None, **more):
    box = spaces.Box(np.array([-np.inf, 0.0]), 1.0, (2,), jnp.float32, 1)
    space = {"a": (box, [spaces.Discrete(3)]), "mask": spaces.Box(False, True, (3,), jnp.bool_)}
    action = spaces.MultiDiscrete((3, 2))
    levels = lambda key, shape: jnp.zeros(shape)
    return Env("world", levels, lambda level: ((), level), levels, step, space, action, legal, **more)


def test_spaces_and_parts_come_back():
    env = world(
        lambda obs: obs["mask"] != 0, own=lambda obs: obs["a"], state=lambda obs: {"s": obs["a"][0]}, num_agents=2
    )
    fields = json.loads(json.dumps(spaces_only.described(env), allow_nan=False))
    back = spaces_only.stand_in("world", fields, "missing")
    flat = lambda space: jax.tree.map(np.asarray, jax.tree.leaves(space))
    jax.tree.map(np.testing.assert_array_equal, *(flat(x.observation_space) for x in (env, back)))
    assert spaces.struct(back.observation_space) == spaces.struct(env.observation_space)
    assert back.action_space == env.action_space and back.num_agents == 2
    obs = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), spaces.struct(env.observation_space))
    for part in ("own", "state", "legal"):
        one, other = (getattr(x, part)(obs) for x in (env, back))
        assert jax.tree.structure(one) == jax.tree.structure(other)
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert jax.tree.map(lambda x: x.shape, back.reset(jax.random.key(0))[1])["mask"] == (2, 3)


def test_what_only_code_knows_is_told():
    fields = spaces_only.described(world(lambda obs: ~obs["mask"]))
    assert fields["code"] == ["legal"]
    with pytest.raises(ConfigError, match="^missing; its spaces are saved, but legal is code of the module$"):
        spaces_only.stand_in("world", fields, "missing")


@pytest.mark.rest("damage0")
@pytest.mark.parametrize(
    "damage",
    [
        {"observation": {"leaf": {"low": 0, "high": 1, "shape": [10**9], "dtype": "float32", "num_frames": 1}}},
        {"observation": {"leaf": {"low": 0, "high": 1, "shape": [2], "dtype": "object", "num_frames": 1}}},
        {"observation": {"leaf": {"low": "x", "high": 1, "shape": [2], "dtype": "float32", "num_frames": 1}}},
        {"action": {"leaf": {"n": -1}}},
        {"action": 3},
        {"num_agents": 0},
        {"legal": "['other']"},
        {"observation": None},
    ],
)
def test_damaged_spaces_are_refused(damage):
    fields = spaces_only.described(envs.make("CartPole-v1"))
    spaces_only.stand_in("CartPole-v1", fields, "missing")
    with pytest.raises(ConfigError, match="^missing; its saved spaces are damaged$"):
        spaces_only.stand_in("CartPole-v1", fields | damage, "missing")
