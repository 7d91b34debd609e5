"""Searches from the command line: the same bits however they were interrupted, and artefacts that other runs use."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from purerl import cli, load
from purerl.learned import SOCKET_NAMES, artefacts, sockets
from purerl.meta import cost, search

TINY = [
    "--total-steps",
    "512",
    "--num-envs",
    "4",
    "--num-steps",
    "16",
    "--hidden-sizes",
    "8",
    "--num-epochs",
    "1",
    "--num-minibatches",
    "2",
    "--learning-rate",
    "0.1",  # so large that so few steps tell one candidate from another
]
EVOLVE = ["evolve", "value-loss", "--env", "CartPole-v1", "--population", "4", *TINY]
PAIRED = [*EVOLVE[:4], "Catch-bsuite", "--tasks", "paired", "--population", "4", *TINY]
TALK = ["evolve", "cheap-talk", "--env", "CartPole-v1", "--population", "4", "--sigma", "0.5", *TINY]


def run(*args):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    return stop.value.code


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search of 12 generations that nothing interrupted."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    assert run(*EVOLVE, "--generations", 12, "--out", directory) == 0
    return directory


def outcome(directory):
    """What a search came to: its meta-parameters, bit for bit, and its log."""
    return json.loads((directory / artefacts.NAME).read_text())["meta_params"], (directory / search.LOG).read_text()


@pytest.mark.rest
def test_directory(whole):
    rows = [json.loads(line) for line in (whole / search.LOG).read_text().splitlines()]
    assert [row["generation"] for row in rows] == list(range(1, 13))
    assert rows[-1]["frames"] == 12 * 4 * 512 and all(row["alive"] == 1 for row in rows)
    assert all(row["fitness_worst"] <= row["fitness"] <= row["fitness_best"] for row in rows)
    assert sum(row["fitness_worst"] < row["fitness_best"] for row in rows) > 6
    artefact = artefacts.load(whole)
    assert np.any(artefact.meta_params[-1]["kernel"])  # 0 where the search begins
    assert artefact.socket == "value-loss" and artefact.card["frames"] == 12 * 4 * 512
    assert artefact.card["strategy"]["name"] == "Open_ES" and artefact.measured["versions"]["jax"] == jax.__version__
    assert artefact.measured["seconds"] > 0 and not {"seconds", "device", "flags"} & set(artefact.card)
    assert {"config.json", "summary.json", "curve.png", "learned.png"} <= {path.name for path in whole.iterdir()}


@pytest.mark.weekly
def test_longer_search_goes_on(whole, tmp_path):
    """5 generations and then 7 more are 12."""
    directory = tmp_path / "run"
    assert run(*EVOLVE, "--generations", 5, "--out", directory) == 0
    assert outcome(directory) != outcome(whole)
    assert run("resume", directory, "--generations", 12) == 0
    assert outcome(directory) == outcome(whole)
    assert run("resume", directory) == 0 and outcome(directory) == outcome(whole)
    expected = (directory / artefacts.NAME).read_text()
    (directory / artefacts.NAME).unlink()
    assert run("resume", directory) == 0 and outcome(directory) == outcome(whole)
    lost, found = (json.loads(text)["meta_params"] for text in (expected, (directory / artefacts.NAME).read_text()))
    assert lost == found  # a result that is lost is written again


@pytest.mark.weekly
def test_a_search_begins_at_a_learned_function(whole, tmp_path):
    """So small steps leave it as it was; it is in the run, which needs the other one no more."""
    first, second, again = tmp_path / "first", tmp_path / "second", tmp_path / "again"
    shutil.copytree(whole, first)
    still = "--sigma", 1e-9, "--sigma-limit", 1e-9, "--meta-learning-rate", 1e-9
    assert run(*EVOLVE, "--initial", first, *still, "--generations", 1, "--out", second) == 0
    shutil.rmtree(first)
    assert run("resume", second, "--generations", 2) == 0
    begun, ended = artefacts.load(whole), artefacts.load(second)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-7), begun.meta_params, ended.meta_params)
    assert ended.card["initial"] == json.loads((whole / artefacts.NAME).read_text())["sha256"]
    assert run(*EVOLVE[:2], "--config", second / "config.json", "--generations", 2, "--out", again) == 0
    assert outcome(again) == outcome(second)


def start(*args):
    return subprocess.Popen([sys.executable, "-m", "purerl.cli", *map(str, args)], stderr=subprocess.DEVNULL)


def wait_for(directory, generations):
    """Until the log has as many rows."""
    for _ in range(3000):
        if (directory / search.LOG).exists() and len((directory / search.LOG).read_text().splitlines()) >= generations:
            return
        time.sleep(0.02)
    raise TimeoutError


@pytest.mark.weekly
def test_interrupted_search_goes_on(tmp_path, long):
    """Killed in the middle, and ended politely further on: resumed, it ends in the bits of one that was not."""
    evolve, generations, expected = long
    directory = tmp_path / "run"
    args = *evolve, "--generations", generations, "--out", directory, "--checkpoint-seconds", 0.2
    for number, code, rows in ((signal.SIGKILL, -signal.SIGKILL, 20), (signal.SIGTERM, 143, 100)):
        process = start(*args)
        wait_for(directory, rows)
        process.send_signal(number)
        assert process.wait(60) == code
        assert (directory / "summary.json").exists() == (number == signal.SIGTERM)
        args = "resume", directory
    assert start(*args).wait(300) == 0
    assert outcome(directory) == expected


@pytest.fixture(scope="module", params=[PAIRED, TALK], ids=["paired", "cheap-talk"])
def long(request, tmp_path_factory):
    """A search that takes long enough to be interrupted: its command, length and outcome."""
    directory = tmp_path_factory.mktemp("long") / "run"
    assert start(*request.param, "--generations", 400, "--out", directory).wait(300) == 0
    return request.param, 400, outcome(directory)


@pytest.mark.weekly
def test_fixed_time(tmp_path):
    directory = tmp_path / "run"
    assert run(*EVOLVE, "--generations", 10**6, "--out", directory, "--budget-seconds", 1) == 0
    summary = json.loads((directory / "summary.json").read_text())
    assert 1 <= summary["generations"] < 10**6 and summary["status"] == "stopped"
    assert run("resume", directory) == 0
    again = json.loads((directory / "summary.json").read_text())
    assert again["generations"] == summary["generations"] and again["seconds"] >= 1


@pytest.mark.weekly
def test_dry_run(tmp_path, capsys):
    assert run(*EVOLVE, "--generations", 10**6, "--population", 64, "--dry-run", "--out", tmp_path / "run") == 0
    out, err = capsys.readouterr()
    assert (
        "32,768,000,000" in out
        and re.search(r"whole search +about [\d.e+]+ (h|days)\n", out)
        and not (tmp_path / "run").exists()
    )
    assert "compiling, then timing 2 generations of 64 candidates with lives of" in err


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("evolve", "value-los"), "socket = 'value-los': unknown; nearest: value-loss"),
        (("evolve", "value-loss"), "env = (): must be one or more environments"),
        ((*EVOLVE, "--algo", "dqn"), "algo = 'dqn': has no socket value-loss"),
        ((*EVOLVE, "--strategy", "OpenES"), "strategy = 'OpenES': unknown"),
        ((*EVOLVE, "--population", "5"), "population = 5:"),
        ((*EVOLVE, "--strategy", "CMA_ES"), "strategy = 'CMA_ES': 4418 meta-parameters, at most 2000"),
        ((*TALK, "--env", "CartPole-v1", "Pendulum-v1"), "actions must be all Discrete or all Box"),
        ((*EVOLVE, "--tasks", "paired", "--strategy", "SNES"), "tasks = 'paired':"),
        ((*EVOLVE, "--tasks", "paired", "--lifetimes", "1", "2", "3"), "population = 4:"),
        ((*EVOLVE, "--lifetimes", "0"), "lifetimes = (0.0,):"),
        ((*EVOLVE, "--lifetimes"), "lifetimes = ():"),
        ((*EVOLVE, "--env", "CartPole-v9"), "env = 'CartPole-v9': unknown environment"),
        ((*EVOLVE, "--strategy", "meta_gradient", "--num-seeds", "2"), "num_seeds = 2:"),
        ((*EVOLVE, "--strategy", "meta_gradient", "--intrinsic", "rnd"), "intrinsic = 'rnd':"),
        ((*EVOLVE, "--strategy", "SNES", "--momentum", "0.5"), "momentum = 0.5:"),
        ((*EVOLVE, "--sigma", "0"), "sigma = 0.0: must"),
        ((*EVOLVE, "--sigma", "0.001"), "sigma_limit = 0.01:"),
        ((*EVOLVE, "--momentum", "1"), "momentum = 1.0: must"),
        (("evolve", "vtrace-weight", "--env", "Catch-bsuite"), "vtrace-weight: there is nothing to correct"),
        ((*EVOLVE, "--learning-rate", "-1"), "learning_rate = -1.0: must"),
        ((*EVOLVE, "--initial", "/nowhere"), "/nowhere: No such file"),
        ((*EVOLVE, "--initial", "five-tasks-drift"), "is a function for the socket policy-drift, not for value-loss"),
        (
            ("evolve", "lpg", "--env", "CartPole-v1", "--initial", "four-tasks-update-rule", "--lpg-size", "8"),
            "has other settings than the options: lpg_base = 'none', lpg_size = 16\n",
        ),
        ((*TALK, "--env", "Breakout-MinAtar"), "observations [10, 10, 4]; messages of this kind need [400]"),
        ((*TALK, "--env", "CartPole-v1", "Acrobot-v1"), "observations [4]; messages of this kind need [6]"),
        ((*TALK, "--unseen", "0", "4"), "unseen = (0, 4): must be some of 0 to 3"),
        ((*TALK, "--message-scale", "0"), "message_scale = 0.0:"),
        (("evolve", "distill", "/nowhere"), "/nowhere"),
        (("evolve", "report", "/nowhere"), "/nowhere"),
    ],
)
def test_problems(args, line, capsys, tmp_path):
    more = ("--out", tmp_path / "run") if args[1] in SOCKET_NAMES else ()
    assert run(*args, *more) == 2
    err = capsys.readouterr().err
    assert line in err and err.startswith("purerl: error: ") and not (tmp_path / "run").exists()


@pytest.mark.rest
def test_directories_are_not_mixed_up(whole, tmp_path, capsys):
    assert run(*EVOLVE, "--generations", 12, "--out", whole) == 2
    assert "already in use" in capsys.readouterr().err
    assert run("resume", whole, "--sigma", "0.5") == 2
    assert capsys.readouterr().err == "purerl: error: sigma = 0.5: the run has 0.04; it cannot be changed\n"
    assert run("resume", tmp_path / "none") == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.rest
def test_overwrite_and_resume(tmp_path, capsys):
    """A search is replaced when asked to, and never begun anew in the name of going on; other files stay."""
    directory = tmp_path / "run"
    for _ in range(2):
        assert run(*EVOLVE, "--generations", 1, "--out", directory, "--overwrite") == 0
    (directory / "notes.txt").write_text("mine")
    capsys.readouterr()
    assert run(*EVOLVE, "--generations", 1, "--out", directory, "--overwrite") == 2
    assert "already in use" in capsys.readouterr().err and (directory / search.LOG).exists()
    shutil.rmtree(directory / search.CHECKPOINTS)
    assert run("resume", directory, "--generations", 2) == 2
    assert "has no checkpoint" in capsys.readouterr().err and (directory / search.LOG).read_text()


def test_hours_are_those_of_iterations():
    """A life's beginning is not counted with every iteration."""
    assert cost._extrapolate([2, 16], (1.2, 1.9), 100) == pytest.approx(1.9 + 0.05 * 84)
    assert cost._extrapolate([2], (1.2,), 2) == 1.2 and cost._extrapolate([2, 16], (2.0, 1.9), 100) == 1.9


@pytest.mark.weekly
def test_dry_run_with_a_warm_up(tmp_path, capsys):
    args = ["evolve", "td-loss", "--env", "Catch-bsuite", "--population", "2", "--hidden-sizes", "8"]
    args += ["--total-steps", "4096", "--warmup-steps", "1024", "--capacity", "2048", "--dry-run"]
    assert run(*args, "--generations", 10, "--out", tmp_path / "run") == 0
    assert f"{10 * 2 * 4096:,}" in capsys.readouterr().out


@pytest.mark.weekly
def test_report(whole, capsys, monkeypatch):
    one = sockets.value_loss()._replace(baselines=sockets.value_loss().baselines[:1])
    monkeypatch.setitem(sockets.SOCKETS, "value-loss", lambda: one)
    assert run("evolve", "report", whole, "--seeds", 5, "--tuning-seeds", 2, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((whole / "report.json").read_text()) == artefacts.load(whole).card["evidence"]
    assert [row["baseline"] for row in result["rows"]] == ["L2"]
    for row in result["rows"]:
        gap = row["difference"]
        assert row["trained_on"] and row["without"] == row["baseline_without"] == 0
        np.testing.assert_allclose(gap["value"], row["fitness"] - row["baseline_fitness"], atol=1e-4)
        assert gap["low"] <= gap["value"] <= gap["high"]


@pytest.mark.weekly
def test_used_by_a_training(whole, tmp_path, capsys):
    """By run or by file, learned or in closed form; and the run keeps what it used."""
    train = ["train", "ppo", "--env", "CartPole-v1", *TINY, "--eval-episodes", "2"]
    learned = artefacts.load(whole)
    moved = learned._replace(meta_params=jax.tree.map(lambda x: x + 0.1, learned.meta_params))  # it had found nothing
    result = tmp_path / "search"
    result.mkdir()
    artefacts.save(result / artefacts.NAME, moved)
    assert run("evolve", "distill", result, "--out", tmp_path / "closed.json") == 0
    assert "error" in capsys.readouterr().out
    functions = {"plain": [], "learned": ["--value-loss", result], "closed": ["--value-loss", tmp_path / "closed.json"]}
    policies = {}
    for name, more in functions.items():
        assert run(*train, *more, "--out", tmp_path / name) == 0
        policies[name] = np.concatenate([np.ravel(x) for x in jax.tree.leaves(load(tmp_path / name).policy)])
    for name in ("learned", "closed"):
        assert np.max(np.abs(policies["plain"] - policies[name])) > 1e-4, name
    assert load(tmp_path / "learned").saved["learned"]["value_loss"]["socket"] == "value-loss"
    capsys.readouterr()
    assert run(*train, "--objective", result, "--out", tmp_path / "wrong") == 2
    assert "is a function for the socket value-loss, not for policy-drift" in capsys.readouterr().err


@pytest.mark.weekly
def test_messages(tmp_path, capsys):
    """A guide's search, from its directory: played at the end of each life, compared, resumed, and heard by a training
    whose policy is then evaluated with them."""
    directory, heard = tmp_path / "run", tmp_path / "heard"
    guide = "--role", "guide", "--unseen", "1", "3", "--message-scale", "2"
    assert run(*TALK, *guide, "--generations", 2, "--out", directory) == 0
    artefact = artefacts.load(directory)
    assert artefact.settings["unseen"] == [1, 3] and artefact.settings["goal_size"] == 1 and artefact.made.trial
    assert (directory / "learned.png").exists()
    rows = [json.loads(line) for line in (directory / search.LOG).read_text().splitlines()]
    assert all(0 < row["fitness"] < 500 for row in rows)
    assert run("evolve", "report", directory, "--seeds", 3) == 0
    assert "random messages" in capsys.readouterr().out
    assert run("evolve", "report", directory, "--env", "Acrobot-v1") == 2
    assert "trainings" not in (err := capsys.readouterr().err) and "observations [6]; messages of this kind" in err
    assert run("resume", directory, "--generations", 3) == 0 and "report.json" not in os.listdir(directory)
    train = ["train", "ppo", "--env", "CartPole-v1", *TINY, "--message", directory, "--eval-episodes", "2"]
    assert run(*train, "--out", heard) == 0 and run("eval", heard, "--episodes", "2") == 0
    assert load(heard).env.observation_space.shape == (2 + 2,)
    capsys.readouterr()
    assert run(*train, "--env", "Acrobot-v1", "--out", tmp_path / "wrong") == 2
    assert "observations [6]; messages of this kind need [4]" in capsys.readouterr().err


@pytest.mark.weekly
def test_several_tasks(tmp_path):
    """Two environments and two lifetimes; a candidate is as good as its ranks in all of them."""
    args = ["evolve", "lpg", "--env", "Catch-bsuite", "CartPole-v1", "--population", "4", "--num-seeds", "2"]
    args += ["--strategy", "SNES", "--total-steps", "512", "--num-steps", "16", "--hidden-sizes", "8"]
    assert run(*args, "--lifetimes", 1, 0.5, "--generations", 2, "--out", tmp_path / "run") == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["frames"] == 2 * 4 * 2 * 2 * (512 + 256) and artefacts.load(tmp_path / "run").socket == "lpg"
    rows = [json.loads(line) for line in (tmp_path / "run" / search.LOG).read_text().splitlines()]
    names = [f"fitness/{env}/{part}" for env in ("Catch-bsuite", "CartPole-v1") for part in (1, 0.5)]
    means = [[row[name] for name in names] for row in rows]
    np.testing.assert_allclose(np.mean(means, axis=1), [row["fitness"] for row in rows], rtol=1e-5)


@pytest.mark.rest
def test_search_in_use(whole, capsys):
    hold = "import sys, time; from pathlib import Path; from purerl.runs.describing.run_directory import lock\n"
    hold += "with lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", hold, str(whole)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        before = {path: os.stat(path).st_mtime_ns for path in whole.iterdir() if path.is_file()}
        assert run("resume", whole, "--generations", 13) == 2
        assert f"in use by process {other.pid}" in capsys.readouterr().err
        assert before == {path: os.stat(path).st_mtime_ns for path in before}
    finally:
        other.kill()
        other.wait()
