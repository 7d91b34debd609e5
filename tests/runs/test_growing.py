"""Runs that grow: a directory whose policies act as before, and from which a training goes on."""

import json
import shutil

import jax
import numpy as np
import pytest
from commands import run

from purerl.runs.describing import run_directory
from purerl.runs.reading import evaluation, loading
from purerl.store import checkpoint, guards, log
from purerl.types import Situation

pytestmark = pytest.mark.weekly  # all of them need whole runs

SMALL = ["--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "8", "--eval-episodes", "2", "--hidden-sizes", "8"]
REPLAY = ["--warmup-steps", "128", "--capacity", "256", "--batch-size", "8"]
TRAIN = {
    "ppo": ["train", "ppo", *SMALL, "8", "--num-seeds", "3", "--agents-at-once", "2", "--normalize-obs"],
    "dqn": ["train", "dqn", *SMALL, "8", *REPLAY, "--prioritised", "--lag", "1"],
    "sweep": ["sweep", "a2c", *SMALL, "8", "--gamma", "0.9,0.99"],
    "bc": ["train", "bc", "--hidden-sizes", "8", "8", "--eval-episodes", "2", "--data"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A small run of each kind."""
    directory = tmp_path_factory.mktemp("runs")
    play = directory / "play.safetensors"
    run("record", "random", "--env", "CartPole-v1", "--episodes", 4, "--out", play)
    for name, args in TRAIN.items():
        args = [*args, play] if args[-1] == "--data" else args
        run(*args, "--total-steps", 512, "--out", directory / name)
    return directory


@pytest.mark.parametrize("name", list(TRAIN))
def test_grows_and_goes_on(name, runs, tmp_path, capsys):
    out = tmp_path / "grown"
    if name == "ppo":
        run("grow", runs / name, "--hidden-sizes", 16, 12, "--out", out, "--dry-run")
        printed = capsys.readouterr()
        assert f"{out} would have hidden_sizes: (8, 8) -> (16, 12), after iteration" in printed.err
        assert "whole training" in printed.out and not out.exists()
    run("grow", runs / name, "--hidden-sizes", 16, 12, "--out", out)
    assert f"resume with: purerl resume {out}" in capsys.readouterr().err
    config = json.loads((out / "config.json").read_text())
    assert config["config"]["hidden_sizes"] == [16, 12] and "hidden_sizes: (8, 8) -> (16, 12)" in config["history"][-1]
    small, large = loading.load(runs / name), loading.load(out)
    assert large.setup.labels == small.setup.labels and large.setup.config.hidden_sizes == (16, 12)
    obs = jax.random.normal(jax.random.key(0), (100, 4))
    for i in range(small.setup.members.size):
        acted = [
            np.asarray(
                each.learner.exploit(
                    jax.tree.map(lambda x, i=i: x[i], each.policy), Situation(obs, ()), jax.random.key(1)
                )[0]
            )
            for each in (small, large)
        ]
        assert np.mean(acted[0] == acted[1]) > 0.98  # two values that are nearly equal may be rounded apart
    played = [evaluation.evaluate_run(path, 4, 500, 0)["return_per_seed"] for path in (runs / name, out)]
    np.testing.assert_allclose(*played, rtol=0.05)
    for logged in (run_directory.METRICS, run_directory.QUANTILES):
        assert (out / logged).read_bytes() == (runs / name / logged).read_bytes()
    run("resume", out, "--total-steps", 1024)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "completed" and all(summary["alive_per_seed"])
    rows = list(log.rows(out / run_directory.METRICS))
    last = [row for row in rows if row["env_steps"] > 512]
    assert len(last) >= 32 and all(np.isfinite(row["loss"]) for row in rows)
    assert loading.load(out).setup.config.hidden_sizes == (16, 12)


def test_checkpoints_keep_what_does_not_grow(runs, tmp_path):
    """Counts, actors, keys and the replay are those of the run; the step has its number."""
    run("grow", runs / "dqn", "--hidden-sizes", 8, 20, "--out", tmp_path / "grown")
    steps = [checkpoint.newest(path / "checkpoints" / "0") for path in (runs / "dqn", tmp_path / "grown")]
    assert steps[0].number == steps[1].number
    arrays = [header(step.path / checkpoint.PIECE.format(0)) for step in steps]
    assert arrays[0].keys() == arrays[1].keys()
    grown = {name for name in arrays[0] if arrays[0][name] != arrays[1][name]}
    assert all(name.startswith(".learner") for name in grown)
    assert {name.split("[")[0].split(".")[2] for name in grown} == {"params", "target_params", "opt_state", "past"}


def header(path):
    """What lies in a safetensors file: the shape and the bytes of each array that could not grow."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    results = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        begin, end = entry["data_offsets"]
        results[name] = entry["shape"], data[8 + length + begin : 8 + length + end]
    return results


def test_grows_twice(runs, tmp_path):
    run("grow", runs / "ppo", "--hidden-sizes", 8, 12, "--out", tmp_path / "once")
    run("grow", tmp_path / "once", "--hidden-sizes", 10, 12)
    assert loading.load(tmp_path / "once-grown").setup.config.hidden_sizes == (10, 12)
    assert len(guards.read_json(tmp_path / "once-grown" / "config.json")["history"]) == 2


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ([16], "hidden_sizes = (16,):"),
        ([8, 8, 8], "hidden_sizes = (8, 8, 8): the run has (8, 8); layers can be widened, but not added"),
        ([8, 4], "hidden_sizes = (8, 4): the run has (8, 8); layers cannot shrink"),
        ([8, 8], "hidden_sizes = (8, 8): the run has (8, 8); nothing would grow"),
        ([8, 0], "hidden_sizes = (8, 0): every element must be int in"),
    ],
)
def test_sizes_that_are_refused(sizes, line, runs, tmp_path, capsys):
    run("grow", runs / "ppo", "--hidden-sizes", *sizes, "--out", tmp_path / "grown", expect=2)
    error = capsys.readouterr().err
    assert line in error and len(error.splitlines()) == 1 and not (tmp_path / "grown").exists()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["ppo", "--layer-norm"], "LayerNorm_0.bias: a wider layer would be normalised by another mean"),
        (["ppo", "--memory", "gru", "--sequence-length", 2], "memory = 'gru':"),
        (["sac-discrete", *REPLAY], "keeps its parameters or its optimisers in a way that surgery does not know"),
    ],
)
def test_networks_that_are_refused(args, line, tmp_path, capsys):
    algo, *more = args
    run("train", algo, *SMALL, 8, *more, "--total-steps", 256, "--out", tmp_path / "run")
    capsys.readouterr()
    run("grow", tmp_path / "run", "--hidden-sizes", 16, 16, expect=2)
    error = capsys.readouterr().err
    assert line in error and "Traceback" not in error and not (tmp_path / "run-grown").exists()


def test_directories_that_are_refused(runs, tmp_path, capsys):
    grow = ["grow", runs / "ppo", "--hidden-sizes", 16, 16]
    run(*grow, "--out", runs / "ppo", "--overwrite", expect=2)
    assert "is the run that grows" in capsys.readouterr().err
    run(*grow, "--out", runs / "ppo" / "inside", expect=2)
    assert "inside the run that grows" in capsys.readouterr().err
    (tmp_path / "link").symlink_to(tmp_path)
    run(*grow, "--out", tmp_path / "link", expect=2)
    assert "is a symbolic link" in capsys.readouterr().err
    run(*grow, "--out", runs / "dqn", expect=2)
    assert "already in use" in capsys.readouterr().err
    run("grow", tmp_path / "nowhere", "--hidden-sizes", 16, 16, expect=2)
    run("grow", "--hidden-sizes", 16, 16, expect=2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_bytes((runs / "ppo" / "config.json").read_bytes())
    run("grow", tmp_path / "empty", "--hidden-sizes", 16, 16, expect=2)
    assert "has no checkpoint" in capsys.readouterr().err
    path = tmp_path / "empty" / "config.json"
    path.write_text(path.read_text().replace('"CartPole-v1"', '"nowhere:make"'))
    run("grow", tmp_path / "empty", "--hidden-sizes", 16, 16, expect=2)
    assert "names this module, which would be imported and run, and is new here; --trust" in capsys.readouterr().err
    run(*grow, "--out", tmp_path / "there")
    run(*grow, "--out", tmp_path / "there", expect=2)
    run(*grow, "--out", tmp_path / "there", "--overwrite")


def test_a_log_that_lacks_rows(runs, tmp_path, capsys):
    """Nothing is left of a directory that could not be written whole."""
    copy = shutil.copytree(runs / "ppo", tmp_path / "run")
    (copy / run_directory.METRICS).write_text("")
    run("grow", copy, "--hidden-sizes", 16, 16, expect=2)
    assert "lacks" in capsys.readouterr().err
    assert not (tmp_path / "run-grown").exists()
