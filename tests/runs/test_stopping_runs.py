"""Runs whose agents stop early: at the same iteration however the clock cuts chunks, and whatever interrupted them."""

import json
import shutil

import pytest
from test_resume import break_down, outcome, run

from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.describing.run_directory import EVALUATIONS, METRICS
from purerl.runs.running import device_program

COMMAND = ["train", "ppo", "--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--hidden-sizes", "8"]
COMMAND += ["--eval-episodes", "2", "--num-seeds", "3", "--total-steps", "4096"]
AT = ["--stop-at", "24", "--stop-episodes", "5"]


def rows(directory):
    return [json.loads(line) for line in (directory / METRICS).read_text().splitlines()]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run whose agents stop by themselves."""
    directory = tmp_path_factory.mktemp("stopped") / "run"
    run(*COMMAND, *AT, "--out", directory)
    return directory


@pytest.mark.rest
def test_each_agent_stops_by_the_definition(stopped):
    """The walk through the log gives what the summary says; the run ends with its last agent."""
    summary, log = json.loads((stopped / "summary.json").read_text()), rows(stopped)
    assert summary["status"] == "completed" and json.loads((stopped / "config.json").read_text())["stop"] == {
        "at": 24.0,
        "episodes": 5,
    }
    results = []
    for seed in range(3):
        total, ended, at = 0.0, 0, None
        for row in (row for row in log if row["seed"] == seed):
            total, ended = total + (row["episode_return"] or 0) * row["episodes"], ended + row["episodes"]
            if at is None and ended >= 5:
                at, total, ended = (row["env_steps"] if total / ended >= 24 else None), 0.0, 0
            assert row["stopped"] == (at is not None)
        results.append(at)
    assert summary["stopped_at_per_seed"] == results and len(set(results)) > 1
    assert max(results) == log[-1]["env_steps"] == summary["env_steps"] < 4096


@pytest.mark.rest
def test_the_clock_changes_nothing(stopped, tmp_path, monkeypatch):
    """Chunks of one iteration give every byte that chunks of many do, but for the state after the last one stopped."""
    monkeypatch.setattr(device_program, "CHUNK_SECONDS", 1e-9)
    run(*COMMAND, *AT, "--out", tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(stopped)


@pytest.mark.weekly
def test_a_resumed_run_stops_at_the_same_iteration(stopped, tmp_path, capsys):
    break_down(*COMMAND, *AT, "--out", tmp_path / "run", after=2)
    run("resume", tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(stopped)
    run("resume", tmp_path / "run", "--total-steps", 8192)  # nobody is left to go on
    assert rows(tmp_path / "run") == rows(stopped)
    capsys.readouterr()
    for more in (["--stop-at", "30"], ["--stop-at", "30", "--override"], ["--eval-every", "64"]):
        run("resume", tmp_path / "run", *more, expect=2)
        assert "it cannot be changed" in capsys.readouterr().err


@pytest.mark.weekly
def test_evaluations_decide_where_there_are_any(tmp_path, monkeypatch):
    """An agent stops after the first evaluation that reaches the return; interrupted or not."""
    command = [*COMMAND, "--eval-every", "128", "--stop-at", "30", "--total-steps", "2048"]
    run(*command, "--out", tmp_path / "whole")
    summary = json.loads((tmp_path / "whole/summary.json").read_text())
    results = [json.loads(line) for line in (tmp_path / "whole" / EVALUATIONS).read_text().splitlines()]
    first = [
        next((row["env_steps"] for row in results if row["seed"] == seed and row["eval_return"] >= 30), None)
        for seed in range(3)
    ]
    assert summary["stopped_at_per_seed"] == first and len(set(first)) > 1
    for seed, at in enumerate(first):  # from there on the policy stays as it is
        after = [row["eval_return"] for row in results if row["seed"] == seed and at and row["env_steps"] >= at]
        assert len(set(after)) <= 1
    monkeypatch.setattr(device_program, "CHUNK_SECONDS", 1e-9)
    break_down(*command, "--out", tmp_path / "broken", after=5)
    shutil.copytree(tmp_path / "broken", tmp_path / "copy")
    run("resume", tmp_path / "broken")
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    assert (tmp_path / "broken" / EVALUATIONS).read_bytes() == (tmp_path / "whole" / EVALUATIONS).read_bytes()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--stop-episodes", "5"], "stop_episodes = 5:"),
        (["--stop-at", "5", "--stop-episodes", "5", "--eval-every", "64"], "has no effect with eval_every"),
        (["--stop-at", "nan"], "stop_at = nan:"),
        (["--stop-at", "1e300"], "stop_at = 1e+300: is inf in float32"),
    ],
)
def test_one_line_for_what_cannot_be(options, line, capsys):
    run(*COMMAND, *options, expect=2)
    assert line in capsys.readouterr().err


@pytest.mark.rest
def test_runs_of_before_are_read(stopped):
    """Those that know neither of early stopping nor of warm starts, nor of a limit of the divergence."""
    fields = json.loads((stopped / "policy.json").read_text())
    for name in ("stop", "warm_start"):
        del fields[name]
    del fields["config"]["target_kl"]
    result = TrainingDescription.of_json(fields, "policy.json")
    assert result.stop == result.warm_start == {} and Setup.of(result).config.target_kl == 0
