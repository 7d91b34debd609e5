"""Runs in slow environments of the host that a signal, or an environment itself, ends under way."""

import json
import os
import re
import signal
import textwrap
import time

import pytest
from commands import run

from purerl import interrupts
from purerl.display import progress
from purerl.runs.reading import evaluation, host_evaluation
from purerl.runs.running import training
from purerl.store import checkpoint

ITERATION = 4 * 8
ENVIRONMENT = """
    import os, signal, sys, time
    import gymnasium, numpy as np
    from gymnasium import spaces

    class Slow(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (2,), np.float32)
        action_space = spaces.Discrete(2)

        def __init__(self, ends=5, seconds=0.0, kind=0, at=0):
            self.ends, self.seconds, self.kind, self.at, self.steps = ends, seconds, int(kind), at, 0
            if self.kind == 4:
                signal.signal(signal.SIGINT, signal.SIG_DFL)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.t, self.steps = self.t + 1, self.steps + 1
            if self.steps == self.at and not os.path.exists(MARK):
                open(MARK, "x").close()
                if self.kind == 1:
                    raise KeyboardInterrupt("of its own")
                if self.kind == 2:
                    sys.exit("of its own")
                if self.kind != 5:
                    os.kill(PARENT, signal.SIGTERM if self.kind == 3 else signal.SIGINT)
                time.sleep(self.seconds)
            return np.zeros(2, np.float32), 1.0, False, self.t == self.ends, {}
"""


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains in the environment above, in which a copy does something at its step ``at``, once."""
    name = f"slow_{tmp_path.name.replace('-', '_')}"
    places = f"MARK, PARENT = {str(tmp_path / 'mark')!r}, {os.getpid()}\n"
    (tmp_path / f"{name}.py").write_text(places + textwrap.dedent(ENVIRONMENT))
    monkeypatch.syspath_prepend(tmp_path)

    def run_it(*options, expect=0, iterations=5, algo="ppo", **params):
        given = [f"{key}={value}" for key, value in params.items()]
        sizes = ["--num-envs", 4, "--num-steps", 8, "--hidden-sizes", 8, "--eval-episodes", 2, "--workers", "none"]
        sizes += ["--total-steps", iterations * ITERATION, "--out", tmp_path / "run"]
        run("train", algo, "--env", f"{name}:Slow", "--env-params", *given, *sizes, *options, expect=expect)
        return tmp_path / "run"

    return run_it


def rows(directory, name="metrics"):
    return [json.loads(line) for line in (directory / f"{name}.jsonl").read_text().splitlines()]


WAYS = {
    "here": ("--workers", "none"),
    "ahead": ("--ahead", "1"),
    "workers": ("--workers", "2"),
    "threads": ("--double-buffering", "on"),
}


@pytest.mark.rest
@pytest.mark.weekly("ahead", "workers", "threads")
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_within_an_iteration_is_answered_at_once_and_keeps_those_before(way, train, capsys):
    start = time.monotonic()
    run_dir = train(*WAYS[way], at=20, seconds=0.3 if way == "ahead" else 60, expect=130)
    assert time.monotonic() - start < 60
    said = capsys.readouterr().err.splitlines()
    assert said.count(interrupts.SAVES) == 1 and said[-1].startswith("interrupted and saved; resume with: ")
    done = checkpoint.newest(run_dir / "checkpoints" / "0").number
    assert done in ((1, 2) if way == "ahead" else (2,))
    assert [row["iteration"] for row in rows(run_dir)] == list(range(1, done + 1))
    run("resume", run_dir)
    assert [row["iteration"] for row in rows(run_dir)] == [1, 2, 3, 4, 5]


@pytest.mark.weekly
def test_a_signal_in_a_warm_up_is_answered(train, capsys):
    sizes = "--capacity", 512, "--batch-size", 4, "--warmup-steps", 4 * ITERATION
    run_dir = train(*sizes, algo="dqn", at=12, seconds=60, kind=3, iterations=6, expect=143)
    said = capsys.readouterr().err
    assert interrupts.SAVES in said and "interrupted; nothing new to save; resume with: " in said
    assert not checkpoint.steps(run_dir / "checkpoints" / "0") and rows(run_dir) == []


@pytest.mark.weekly
@pytest.mark.parametrize("number", [1, 2])
def test_a_signal_in_an_evaluation_keeps_the_training(number, train, monkeypatch, capsys):
    """In one under way, and in the last one."""
    evaluate, played = host_evaluation.evaluate, []

    def slow(*args, **how):
        played.append(args)
        if len(played) == number:
            signal.raise_signal(signal.SIGINT)
            time.sleep(60)
        return evaluate(*args, **how)

    monkeypatch.setattr(host_evaluation, "evaluate", slow)
    run_dir = train("--eval-every", 4 * ITERATION, at=0, iterations=6, expect=130)
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"interrupted and saved; resume with: purerl resume {run_dir}"
    assert [row["iteration"] for row in rows(run_dir)][-1] == (4 if number == 1 else 6)
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "interrupted"
    run("resume", run_dir)
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "completed"


@pytest.mark.rest
@pytest.mark.weekly("threads", "1")
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("way", ["here", "threads"])
def test_what_an_environment_raises_itself_is_no_signal(way, kind, train, capsys):
    run_dir = train(*WAYS[way], at=20, kind=kind, expect=1)
    error = capsys.readouterr().err.splitlines()[-1]
    name = {1: "KeyboardInterrupt", 2: "SystemExit"}[kind]
    assert re.match(rf"purerl: error: environment 0 raised {name}: of its own \(slow_\w+\.py:", error)
    assert checkpoint.newest(run_dir / "checkpoints" / "0").number == 2


@pytest.mark.weekly
def test_handlers_of_an_environment_change_nothing(train, capsys):
    run_dir = train(at=20, seconds=60, kind=4, expect=130)
    assert capsys.readouterr().err.splitlines()[-1].startswith("interrupted and saved")
    assert len(rows(run_dir)) == 2


@pytest.mark.rest
def test_a_long_iteration_is_told_of(train, monkeypatch, capsys):
    monkeypatch.setattr(progress, "QUIET", 0.2)  # so that nothing waits long
    train(at=6, seconds=1, kind=5, iterations=2)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(" 31 %  ")]
    assert told[0].endswith("  return -  iteration 1: 20 of 32 steps, 4 episodes ended")


@pytest.mark.rest
def test_a_training_without_an_end_claims_no_return(train, monkeypatch, capsys):
    """It says so under way and at its end; its evaluation is cut off, and says so."""
    monkeypatch.setattr(evaluation, "STEPS", 50)  # a bound that a test can reach
    monkeypatch.setattr(training, "ENDLESS_SECONDS", 1e-9)  # so that nothing waits long
    run_dir = train("--eval-every", 2 * ITERATION, ends=0, iterations=2)
    said = capsys.readouterr().err.splitlines()
    told = "no episode has ended after {} steps of 4 copies, so that no return is known; --env-params max_episode_steps"
    assert said[-2].startswith(told.format(16)) and any(line.startswith("no episode") for line in said[:-2])
    assert "; no return, 2 of 2 episodes were cut off after " in said[-1]
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["return_per_seed"] == [None] and summary["return_mean"] is None
    assert summary["unfinished_per_seed"] == [2] and summary["cut_off"]["of"] == 2
    assert [row["eval_return"] for row in rows(run_dir, "evaluations")] == [None]
    run("eval", run_dir, "--episodes", 3, "--max-steps", 7, "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["cut_off"] == {"episodes": 3, "of": 3, "after_steps": 7} and result["return_per_seed"] == [None]
    run("eval", run_dir, "--episodes", 3, "--max-steps", 7)
    assert "no return: no episode ended\n3 of 3 episodes were cut off after 7 steps\n" in capsys.readouterr().out
