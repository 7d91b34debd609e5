"""Environments of the host by name, compared with plain loops over Gymnasium's own."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import host_envs
import numpy as np
import pytest
from host_envs import assert_same, looped, played

from purerl.cli import main
from purerl.errors import ConfigError
from purerl.hosts import making

LANES, STEPS = 3, 120


@pytest.mark.parametrize("params", [{}, {"vector": 0}], ids=["array", "singles"])
def test_trajectories_equal_a_plain_loop_bit_for_bit(params):
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, LANES))
    loop = looped(lambda: gymnasium.make("CartPole-v1"), actions)
    assert (loop[1][2].sum(axis=0) >= 2).all()
    assert_same(played(making.make("gymnasium/CartPole-v1", params), actions), loop)


def test_the_time_limit_truncates():
    env = making.make("gymnasium/Pendulum-v1", {})
    actions = np.random.default_rng(0).uniform(-2, 2, (205, 2, 1)).astype(np.float32)
    host, loop = played(env, actions), looped(lambda: gymnasium.make("Pendulum-v1"), actions)
    assert loop[1][3].sum() == 2 and not loop[1][2].any()
    assert_same(host, loop)
    np.testing.assert_array_equal(env.action_space.high, [2])


@pytest.mark.parametrize(
    ("function", "params"),
    [("script", {"length": 4}), ("thunk", {"length": 4}), ("Script", {"length": 4})],
)
def test_functions_of_anybodys_own(function, params):
    actions = np.random.default_rng(0).integers(0, 3, (10, LANES))
    env = making.make(f"host_envs:{function}", params)
    assert_same(played(env, actions), looped(lambda: host_envs.Script(4), actions))


def test_what_is_returned_stays():
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, LANES))
    for params in ({}, {"vector": 0}):
        batch = making.make("gymnasium/CartPole-v1", params).batch(LANES)
        batch.reset(np.arange(LANES))
        turns, copies = [], []
        for action in actions:
            turns.append(batch.step(action))
            copies.append([x.copy() for x in (*turns[-1].next_obs, *turns[-1].obs, *turns[-1][1:4])])
        for turn, copy in zip(turns, copies, strict=True):
            for x, y in zip((*turn.next_obs, *turn.obs, *turn[1:4]), copy, strict=True):
                np.testing.assert_array_equal(x, y)


def test_a_batch_can_be_reset_again():
    actions = np.random.default_rng(0).integers(0, 2, (20, LANES))
    batch = making.make("gymnasium/CartPole-v1", {}).batch(LANES)
    one, two = [[batch.reset(np.arange(LANES))[0], *[batch.step(a).obs[0] for a in actions]] for _ in range(2)]
    np.testing.assert_array_equal(one, two)


def test_a_host_env_of_ones_own_is_taken_as_it_is():
    assert making.make("host_envs:ready", {"length": 5}).name == "ready-5"
    with pytest.raises(ConfigError, match="returns a HostEnv; action_repeat must be a parameter"):
        making.make("host_envs:ready", {"action_repeat": 2})


def test_frames_are_those_of_the_library():
    env = making.make("host_envs:script", {})
    assert env.batch(1).frame is None
    batch = env.pictured(2)
    batch.reset(np.arange(2))
    batch.step(np.zeros(2, int))
    assert env.fps == 7
    assert batch.frame(1).shape == (4, 6, 3) and (batch.frame(1) == 1).all()
    assert making.make("host_envs:thunk", {}).pictured(1).frame is None


@pytest.mark.parametrize("family", ["gymnasium/CartPole-v1", "host_envs:script"])
def test_nothing_imports_jax(family):
    code = (
        f"import sys, numpy; from purerl.hosts import making; b = making.make({family!r}, {{}}).batch(2);"
        "b.reset(numpy.arange(2)); b.step(numpy.zeros(2, int)); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(host_envs.__file__).parent)


def test_which_kind_is_seen_without_an_import():
    from purerl import envs

    assert [making.is_host(name) for name in ("gymnasium/CartPole-v1", "envpool/Pong-v5")] == [True] * 2
    assert not any(making.is_host(name) for name in ("CartPole-v1", "host_envs:script", "brax/ant"))
    assert all(making.is_environment(getattr(host_envs, name)()) for name in ("script", "sync", "ready", "thunk"))
    assert not making.is_environment(envs.make("CartPole-v1")) and not making.is_environment(host_envs.nothing())
    assert making.arguments(host_envs.sync, {"length": 3}) == {"num_envs": 1, "length": 3}
    code = (
        "import sys; from purerl.hosts import own; assert not own.is_environment(object());"
        "assert not {'gymnasium', 'pettingzoo', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("gymnasium/CartPol-v1", {}, "unknown environment; nearest: CartPole-v1"),
        ("gymnasium/CartPole-v1", {"suton": 1}, "unknown parameter suton; nearest: sutton_barto_reward"),
        ("gymnasium/Pendulum-v1", {"vector": 1}, "unknown parameter vector"),
        ("gymnasium/CartPole-v1", {"action_repeat": 0}, "action_repeat = 0:"),
        ("gymnasium/CartPole-v1", {"sticky_actions": 2}, r"sticky_actions = 2:"),
        ("host_envs:script", {"lenth": 1}, "unknown parameter lenth; nearest: length"),
        ("host_envs:nothing", {}, "returns SimpleNamespace, must return a Gymnasium environment"),
        ("host_envs:Late", {}, "resets in a separate step.*SAME_STEP, or return a single environment"),
        ("host_envs:fixed", {}, "returns a vector environment of 3, but 1 are needed; give the function a parameter"),
        ("host_envs:sync", {"max_episode_steps": 2}, "max_episode_steps = 2:"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(name, params, words):
    with pytest.raises(ConfigError, match=words) as error:
        making.make(name, params)
    assert "\n" not in str(error.value)


def test_families_are_listed(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["list", "envs", "--family", "gymnasium", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert {"gymnasium/CartPole-v1", "gymnasium/Pendulum-v1"} <= set(result) and "gymnasium/CartPole-v0" not in result
    with pytest.raises(SystemExit, match="0"):
        main(["list", "envs", "--family", "gymnasium"])
    assert capsys.readouterr().out.splitlines() == result


@pytest.mark.parametrize("family", ["envpool", "pettingzoo"])
def test_what_is_not_installed_names_the_extra(family, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"{family} is not installed; pip install 'purerl\\[{family}\\]'"):
        making.make(f"{family}/Pong-v5", {})
    with pytest.raises(ConfigError, match="not installed"):
        making.listed(family)


def test_atari_of_gymnasium_names_its_extra(monkeypatch):
    # as if ale_py were not installed
    monkeypatch.setattr("purerl.hosts.libraries.is_there", lambda module: module == "gymnasium")
    with pytest.raises(ConfigError, match=r"ale_py is not installed; pip install 'purerl\[atari\]'"):
        making.make("gymnasium/ALE/Pong-v5", {})
