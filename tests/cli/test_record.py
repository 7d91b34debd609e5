"""Recorded play, and a training that learns from it: from the command line to a run that goes on."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import own_module, run

from purerl import envs, load_dataset
from purerl.envs import agents

SMALL = ["--env", "CueCorridor-v0", "--env-params", "length=4", "cue_cell=2", "--hidden-sizes", "8"]
SIZES = ["--num-envs", "2", "--num-steps", "8", "--warmup-steps", "128", "--capacity", "256", "--batch-size", "8"]
TRAIN = ["train", "r2d3", *SMALL, *SIZES, "--total-steps", "1024", "--memory-size", "8", "--eval-episodes", "2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file of random play, and a file of somebody's policy."""
    directory = tmp_path_factory.mktemp("play")
    run("record", "random", *SMALL[:5], "--episodes", "30", "--out", directory / "demos.safetensors")
    run("record", "demos:always_one", *SMALL[:2], "--episodes", "3", "--out", directory / "other.safetensors")
    return directory


@pytest.fixture(scope="module")
def trained(place):
    """A run that was trained with the file of random play, beside it."""
    run(*TRAIN, "--demos", place / "demos.safetensors", "--num-seeds", "2", "--out", place / "run")
    return place / "run"


def line(capsys, *args, expect=2):
    run(*args, expect=expect)
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("purerl: error")]
    assert len(error) == 1
    return error[0]


def test_a_card_says_what_was_played(place, capsys):
    out = place / "again.safetensors"
    run("record", "random", *SMALL[:5], "--episodes", "30", "--out", out, "--json")
    card = json.loads(capsys.readouterr().out)
    env = envs.make("CueCorridor-v0", length=4, cue_cell=2)
    data = load_dataset(out, env)
    assert card["env"] == "CueCorridor-v0" and card["env_params"] == {"length": 4, "cue_cell": 2}
    assert card["policy"] == {"function": "random"} and card["versions"]["jax"] and card["episodes"] == 30
    assert card["steps"] == len(data.reward) == int(np.ptp(np.flatnonzero(data.last))) + np.argmax(data.last) + 1
    assert card["return_mean"] == pytest.approx(data.reward.sum() / 30)
    assert out.read_bytes() == (place / "demos.safetensors").read_bytes()  # the same command, the same episodes


@pytest.mark.weekly
def test_an_agent_of_a_run_is_recorded(place, trained, capsys):
    """``cli/test_host_commands.py`` has an agent of another run."""
    demos = json.loads((trained / "config.json").read_text())["datasets"]["demos"]
    run("record", "random", *SMALL[:5], "--episodes", "30", "--out", place / "same.safetensors", "--json")
    assert demos["sha256"] == json.loads(capsys.readouterr().out)["sha256"]
    run("record", place / "run", "--agent", "1", "--episodes", "3", "--out", place / "own.safetensors", "--json")
    card = json.loads(capsys.readouterr().out)
    assert card["policy"]["algo"] == "r2d3" and card["policy"]["seed"] == 1
    load_dataset(place / "own.safetensors", envs.make("CueCorridor-v0", length=4, cue_cell=2))
    error = line(capsys, "record", place / "run", "--agent", "2", "--out", place / "none")
    assert error.endswith("run has agents 0 to 1")
    error = line(capsys, "record", place / "run", "--env", "CartPole-v1", "--out", place / "none")
    assert "plays in its own environment" in error


@pytest.fixture
def windy(tmp_path, monkeypatch):
    """A folder with the environment of the page on one's own, whose critic sees more than the policy."""
    page = (Path(__file__).parents[2] / "docs" / "your-environment.md").read_text()
    text = re.search(r"whole of `windy\.py`.*?^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    with own_module(tmp_path, monkeypatch, "windy", text) as folder:
        yield folder


@pytest.mark.rest
def test_a_recording_has_what_the_policy_reads(windy):
    """So that an algorithm that learns from play takes it, as it takes random play."""
    sizes = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "32", "--hidden-sizes", "4"]
    run("train", "a2c", "--env", "windy:windy", *sizes, "--out", windy / "run")
    run("record", windy / "run", "--episodes", "3", "--trust", "--out", windy / "own.safetensors")
    run("record", "random", "--env", "windy:windy", "--episodes", "3", "--out", windy / "random.safetensors")
    env = agents.own(envs.make("windy:windy"))
    for name in ("own", "random"):
        assert load_dataset(windy / f"{name}.safetensors", env).obs.shape[1:] == (1,)


def test_recordings_that_are_refused(place, capsys):
    assert "already" in line(capsys, "record", "random", *SMALL[:2], "--out", place / "demos.safetensors")
    assert "in an existing directory" in line(capsys, "record", "random", "--out", place / "no" / "x")
    assert "env: is missing" in line(capsys, "record", "random", "--out", place / "none")
    assert "demos:nobody" in line(capsys, "record", "demos:nobody", *SMALL[:2], "--out", place / "none")
    error = line(capsys, "record", "demos:always_seven", *SMALL[:2], "--episodes", "1", "--out", place / "none")
    assert "action: has numbers that" in error and not (place / "none").exists()


def test_what_learns_from_play_cannot_sweep_its_environment(place, capsys):
    given = [*TRAIN[1:4], *SIZES, "--total-steps", "1024", "--demos", place / "demos.safetensors"]
    swept = ["--env-params", "length=4", "cue_cell=2", "sticky_actions=0,0.5"]
    error = line(capsys, "sweep", *given, *swept, "--out", place / "none")
    assert "cannot be swept; r2d3 learns from a dataset of one environment" in error


def test_files_that_are_refused_before_anything_compiles(place, capsys):
    broken = place / "broken.safetensors"
    broken.write_bytes((place / "demos.safetensors").read_bytes()[:-1])
    for given, text in (
        ([], "demos: is missing; give --demos FILE, a file of `purerl record`"),
        (["--demos", place / "other.safetensors"], r"was played with env_params = {}, the run has"),
        (["--demos", broken], "file not fully covered"),
        (["--demos", place / "nothing"], "No such file or directory"),
    ):
        assert text in line(capsys, *TRAIN, *given, "--out", place / "never")
    assert not (place / "never").exists()


@pytest.mark.weekly
@pytest.mark.usefixtures("trained")
def test_a_run_goes_on_with_the_same_demonstrations(place, capsys):
    """Wherever they lie now, and with no others; and it is evaluated without them."""
    (place / "demos.safetensors").rename(place / "moved.safetensors")
    run("eval", place / "run", "--episodes", "2")
    resume = ["resume", place / "run", "--total-steps", "1280"]
    assert "No such file or directory" in line(capsys, *resume)
    other = place / "fewer.safetensors"
    run("record", "random", *SMALL[:5], "--episodes", "5", "--out", other)
    assert "is not the dataset that the run started with" in line(capsys, *resume, "--demos", other)
    run(*resume, "--demos", place / "moved.safetensors")
    config = json.loads((place / "run" / "config.json").read_text())
    assert config["datasets"]["demos"]["path"] == str(place / "moved.safetensors")
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert summary["status"] == "completed" and summary["env_steps"] == 1280
    assert summary["device"]["count"] == jax.device_count() and len(summary["return_per_seed"]) == 2


@pytest.mark.weekly
def test_a_plan_tells_both(place, capsys):
    data = next(path for path in (place / "moved.safetensors", place / "demos.safetensors") if path.exists())
    run("plan", *TRAIN[1:], "--demos", data, "--num-seeds", "2", "--json")
    cost = json.loads(capsys.readouterr().out)
    steps = len(load_dataset(data, envs.make("CueCorridor-v0", length=4, cue_cell=2)).reward)
    floats, others = 5 + 1 + 1, 2  # an observation, a reward and an action; both flags
    assert cost["dataset_bytes"] == pytest.approx(steps * (4 * floats + others), rel=0.1) and cost["replay_bytes"] > 0
