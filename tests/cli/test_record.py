"""Recorded play, and a training that learns from it: from the command line to a run that goes on."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import own_module, run, untrained

from purerl import envs, load_dataset
from purerl.envs import agents
from purerl.runs.reading.episodes import recorded_in_words

SMALL = ["--env", "CueCorridor-v0", "--env-params", "length=4", "cue_cell=2", "--hidden-sizes", "8"]
SIZES = ["--num-envs", "2", "--num-steps", "8", "--warmup-steps", "128", "--capacity", "256", "--batch-size", "8"]
TRAIN = ["train", "r2d3", *SMALL, *SIZES, "--total-steps", "1024", "--memory-size", "8", "--eval-episodes", "2"]
DQN = ["train", "dqn", *SMALL, *SIZES, "--total-steps", "512", "--n-step", "1", "--eval-episodes", "2"]


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


def test_demonstrations_that_an_algorithm_can_do_without(place, capsys):
    error = line(capsys, *DQN, "--demo-ratio", "0.2", "--out", place / "never")
    assert error.endswith("demo_ratio = 0.2: has no effect without demos")
    error = line(capsys, *DQN, "--demos", place / "other.safetensors", "--out", place / "never")
    assert "was played with env_params = {}, the run has" in error
    swept = ["sweep", *DQN[1:4], "--env-params", "length=4", "cue_cell=2", "sticky_actions=0,0.5"]
    error = line(capsys, *swept, "--demos", place / "demos.safetensors", "--out", place / "never")
    assert "cannot be swept; dqn learns from a dataset of one environment" in error
    assert not (place / "never").exists()


@pytest.mark.rest
def test_a_run_keeps_or_lacks_its_demonstrations(place, capsys):
    """What began without any goes on without, and what began with some goes on with the same."""
    demos = ["--demos", place / "demos.safetensors"]
    for name, given in (("with", demos), ("without", [])):
        run(*DQN, *given, "--out", place / name)
        run("resume", place / name, "--total-steps", "640")
        described = json.loads((place / name / "config.json").read_text())["datasets"]
        assert list(described) == ["demos"] * bool(given)
    metrics = [(place / name / "metrics.jsonl").read_text() for name in ("with", "without")]
    assert metrics[0] != metrics[1]
    error = line(capsys, "resume", place / "without", "--total-steps", "768", *demos)
    assert "the run has (); it cannot be changed" in error


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


def test_players_share_the_episodes(place, capsys):
    """One after another, so that a reader finds each one's; the first is not the one that plays alone."""
    out, given = place / "shared.safetensors", ["demos:always_one=0.25", "random=0.75", *SMALL[:5], "--episodes", "8"]
    run("record", *given, "--out", out, "--json")
    card = json.loads(capsys.readouterr().out)
    data = load_dataset(out, envs.make("CueCorridor-v0", length=4, cue_cell=2))
    first, second = card["policy"]["players"]
    assert (first["function"], first["share"], first["episodes"]) == ("demos:always_one", 0.25, 2)
    assert (second["function"], second["share"], second["episodes"]) == ("random", 0.75, 6)
    assert card["steps"] == first["steps"] + second["steps"] and np.sum(data.last[: first["steps"]]) == 2
    assert (data.action[: first["steps"]] == 1).all() and not (data.action[first["steps"] :] == 1).all()
    assert card["episodes"] == 8 == np.sum(data.last)
    assert f"(2 by demos:always_one, 6 by random), {card['steps']} steps" in recorded_in_words(str(out), card)


@pytest.mark.rest
def test_runs_share_with_random_play(tmp_path, capsys):
    """In the environment of the runs, which must be the same one; an agent is named within its run's name."""
    for name, env in (("one", "CartPole-v1"), ("two", "CartPole-v1"), ("other", "Catch-bsuite")):
        untrained(tmp_path / name, "a2c", env)
    one, two, out = tmp_path / "one:0=0.5", tmp_path / "two=0.25", tmp_path / "x.safetensors"
    run("record", "random=0.25", one, two, "--episodes", "4", "--out", out, "--json")
    players = json.loads(capsys.readouterr().out)["policy"]["players"]
    assert [(each.get("run"), each["episodes"]) for each in players] == [(None, 1), ("one", 2), ("two", 1)]
    assert players[1]["agent"] == 0 and players[1]["algo"] == "a2c"
    data = load_dataset(out, envs.make("CartPole-v1"))
    assert len(np.unique(data.obs[np.r_[0, np.flatnonzero(data.last)[:-1] + 1]], axis=0)) == 4  # no two begin alike
    none = tmp_path / "none"
    for name, algo in (("ids", "ippo"), ("plain", "a2c")):
        untrained(tmp_path / name, algo, "KuhnPoker-v0")
    both = tmp_path / "ids=1", tmp_path / "plain=1"
    assert "observes or does something else than" in line(capsys, "record", *both, "--out", none)
    assert "must play in the same environment" in line(capsys, "record", one, tmp_path / "other=1", "--out", none)
    assert "omit --env" in line(capsys, "record", one, "random=1", "--env", "CartPole-v1", "--out", none)
    assert "as RUN:AGENT" in line(capsys, "record", one, two, "--agent", "1", "--out", none)
    assert "has no share" in line(capsys, "record", "random", two, "--out", none)
    run("record", tmp_path / "one:0", "--episodes", "1", "--out", tmp_path / "a.safetensors")
    run("record", tmp_path / "one", "--episodes", "1", "--out", tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
