"""Runs that begin with the critics of others beside their policies: what is saved, read, kept and refused."""

import json
import shutil

import jax
import numpy as np
import pytest
from commands import run
from test_resume import REPLAY, break_down, outcome

from purerl import load
from purerl.errors import ConfigError
from purerl.store import policies

SMALL = ["--env", "Pendulum-v1", "--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--eval-episodes", "2"]
COMMANDS = {name: ["train", name, *SMALL, *REPLAY, "--num-updates", "4"] for name in ("td3", "sac", "ddpg")}
STILL = ["--learning-rate", "1e-30", "--actor-learning-rate", "1e-30"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run of TD3 of two agents."""
    directory = tmp_path_factory.mktemp("source") / "run"
    run(*COMMANDS["td3"], "--num-seeds", 2, "--out", directory)
    return directory


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.rest
def test_a_run_that_hardly_learns_has_the_critics_of_before(source, tmp_path, capsys):
    """With steps too small to change a number, agent by agent or of one for all; also after it broke down, without the
    run that it began with."""
    moved = shutil.copytree(source, tmp_path / "source")
    command = [*COMMANDS["td3"], *STILL, "--num-seeds", 2]
    run(*command, "--warm-start", moved, "--out", tmp_path / "each")
    equal(load(tmp_path / "each").critics, load(source).critics)
    equal(load(tmp_path / "each").only(1).critics, load(source).only(1).critics)
    described = json.loads((tmp_path / "each" / "config.json").read_text())["warm_start"]
    assert described["critics"] == ["critic"]
    run(*command, "--warm-start", f"{moved}:1", "--out", tmp_path / "whole")
    break_down(*command, "--warm-start", f"{moved}:1", "--out", tmp_path / "broken", after=1)
    shutil.rmtree(moved)
    run("resume", tmp_path / "broken")
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    for critic in jax.tree.leaves(jax.tree.map(np.asarray, load(tmp_path / "broken").critics)):
        np.testing.assert_array_equal(critic[0], critic[1])
    assert "begin anew" not in capsys.readouterr().err


@pytest.mark.weekly
def test_sac_goes_on_with_its_temperature(tmp_path):
    run(*COMMANDS["sac"], "--out", tmp_path / "first")
    run(*COMMANDS["sac"], *STILL, "--warm-start", tmp_path / "first", "--out", tmp_path / "second")
    first, second = load(tmp_path / "first").critics, load(tmp_path / "second").critics
    assert set(first) == {"critic", "log_temperature"} and first["log_temperature"] != 0
    equal(first, second)


@pytest.mark.rest
def test_policies_of_before_begin_with_new_critics(source, tmp_path, capsys):
    """A run that saved none, as all did before critics were saved, and the folder of the best policies."""
    old = shutil.copytree(source, tmp_path / "old")
    for name in policies.CRITICS:
        (old / name).unlink()
    assert load(old).critics == {}
    run(*COMMANDS["td3"], *STILL, "--warm-start", f"{old}:0", "--out", tmp_path / "run")
    assert f"{old}: has no critic that fits this training, where they begin anew" in capsys.readouterr().err
    assert "critics" not in json.loads((tmp_path / "run" / "config.json").read_text())["warm_start"]


@pytest.mark.rest
def test_another_algorithm_begins_with_new_critics_where_they_do_not_fit(source, tmp_path, capsys):
    """DDPG has one critic, and TD3 two."""
    run(*COMMANDS["ddpg"], "--warm-start", f"{source}:0", "--out", tmp_path / "run")
    assert "has no critic that fits this training, where they begin anew" in capsys.readouterr().err
    assert "critics" not in json.loads((tmp_path / "run" / "config.json").read_text())["warm_start"]


@pytest.mark.rest
def test_critics_that_do_not_fit_are_told_in_a_line(source, tmp_path, capsys):
    other = shutil.copytree(source, tmp_path / "other")
    policies.save_policy(other, load(source).policy, {**load(source).saved, "note": "another"})
    with pytest.raises(ConfigError, match="has critics of other policies than policy.json beside it$"):
        _ = load(other).critics
    cases = (
        ([], other, "has critics of other policies"),
        (["--critic-hidden-sizes", "6"], source, "in it, and float32[2, 6, 1] in this training"),
        (["--num-critics", "1"], source, "in this training"),
        (["--normalize-obs"], source, "obs_moments.count: is missing in it"),
    )
    for more, where, line in cases:
        capsys.readouterr()
        run(*COMMANDS["td3"], *more, "--warm-start", f"{where}:0", "--out", tmp_path / "run", expect=2)
        error = capsys.readouterr().err
        assert line in error and "compiling" not in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_critics_are_under_their_digest(tmp_path):
    policy, critics = {"actor": np.arange(3.0, dtype=np.float32)}, {"critic": {"w": np.ones((2, 3), np.float32)}}
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), {**critics, "value": critics["critic"]})
    policies.save_policy(tmp_path, policy, {"members": 1})
    assert policies.load_critics(tmp_path, like) == {}
    policies.save_critics(tmp_path, critics)
    equal(policies.load_critics(tmp_path, like), critics)
    raw = bytearray((tmp_path / policies.CRITICS.arrays).read_bytes())
    raw[-1] ^= 1
    (tmp_path / policies.CRITICS.arrays).write_bytes(raw)
    with pytest.raises(ConfigError, match="critics.safetensors: it or critics.json was changed after it was written"):
        policies.load_critics(tmp_path, like)
    (tmp_path / policies.CRITICS.arrays).unlink()
    with pytest.raises(ConfigError, match=r"critics.safetensors: No such file"):
        policies.load_critics(tmp_path, like)
