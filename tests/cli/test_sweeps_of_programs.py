"""Sweeps over settings that shape the program: a run for each value, ranked together."""

import json

import pytest
from commands import run

from purerl.cli import main
from purerl.exports import runner
from purerl.runs.running.train import TrainingRun

SMALL = ["--env", "probe/one-step", "--total-steps", "64", "--num-steps", "8", "--num-minibatches", "1"]
SMALL += ["--hidden-sizes", "4", "--eval-episodes", "2", "--num-seeds", "2"]
SWEPT = ["--num-envs", "2,4", "--learning-rate", "1e-3,1e-2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep of two programs that nothing interrupted."""
    path = tmp_path_factory.mktemp("programs") / "whole"
    run("sweep", "ppo", *SMALL, *SWEPT, "--out", path)
    return path


@pytest.mark.rest
def test_all_configurations_are_ranked_together(whole):
    ranking = json.loads((whole / "sweep.json").read_text())
    assert ranking["swept"] == {"num_envs": [2, 2, 4, 4], "learning_rate": [1e-3, 1e-2, 1e-3, 1e-2]}
    assert sorted((row["config"], row["program"], row["num_envs"]) for row in ranking["ranked"]) == [
        (0, 0, 2),
        (1, 0, 2),
        (2, 1, 4),
        (3, 1, 4),
    ]
    summary = json.loads((whole / "summary.json").read_text())
    parts = [json.loads((whole / str(k) / "summary.json").read_text()) for k in range(2)]
    assert summary["return_per_seed"] == sum((part["return_per_seed"] for part in parts), [])
    assert summary["programs"] == 2 and summary["status"] == "completed" and (whole / "sweep.png").exists()
    assert json.loads((whole / "config.json").read_text())["programs"] == {"num_envs": [2, 4]}
    assert [json.loads((whole / str(k) / "config.json").read_text())["config"]["num_envs"] for k in range(2)] == [2, 4]


@pytest.mark.rest
def test_the_best_agent_of_all_programs(whole, tmp_path, capsys):
    """The numbers of its agents go on from program to program, for every command."""
    returns = json.loads((whole / "summary.json").read_text())["return_per_seed"]
    run("eval", f"{whole}:5", "--episodes", "2", "--json")
    played = json.loads(capsys.readouterr().out)
    assert played["return_per_seed"] == [returns[5]] and played["members"] == [{"config": 0, "seed": 1}]
    run("export", whole, "--agent", "best", "--to", "numpy", "--out", tmp_path / "policy")
    told = capsys.readouterr().err
    assert "agent " in told and "other episodes" in told
    card = json.loads((tmp_path / "policy" / runner.PROGRAM).read_text())
    assert returns[card["agent"]] == max(returns)
    run("train", "ppo", *SMALL[:-2], "--num-envs", "4", "--warm-start", f"{whole}:best", "--out", tmp_path / "warm")
    start = json.loads((tmp_path / "warm" / "config.json").read_text())["warm_start"]
    assert (start["run"], start["agent"]) == (str(whole / str(card["agent"] // 4)), card["agent"] % 4)
    run("compare", whole, "--by", "mean", "--json")
    rows = json.loads(capsys.readouterr().out)["runs"]
    means = [row["iqm"]["value"] for row in rows]
    assert len(rows) == 4 and means == sorted(means, reverse=True)


@pytest.mark.rest
def test_an_interrupted_sweep_ends_in_the_same_bits(whole, tmp_path, monkeypatch):
    begin = TrainingRun.begin

    class Killed(BaseException):
        pass

    def killed(run, command, compiled):
        if run.directory.name == "1":
            raise Killed
        return begin(run, command, compiled)

    monkeypatch.setattr(TrainingRun, "begin", killed)
    with pytest.raises(Killed):
        main(["sweep", "ppo", *SMALL, *SWEPT, "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run" / "sweep.json").exists()
    monkeypatch.setattr(TrainingRun, "begin", begin)
    run("resume", tmp_path / "run")
    for name in ("sweep.json", "0/metrics.jsonl", "1/metrics.jsonl", "0/policy.safetensors", "1/policy.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name
    run("resume", tmp_path / "run")


@pytest.mark.rest
def test_other_commands(whole, tmp_path, capsys):
    run("plot", whole, "--out", tmp_path / "map.png")
    run("eval", whole, expect=2)
    assert f"is a sweep of several programs; name one of {whole}/0 to {whole}/1" in capsys.readouterr().err
    run("resume", whole, "--num-envs", "8", expect=2)
    assert "num_envs = 8:" in capsys.readouterr().err
    run("plot", whole, "--kind", "curves", "--out", tmp_path / "curves.png")
    from purerl.runs.reading import overview

    page = overview.answers(whole.parent)
    [row] = page.runs()["runs"]
    assert (row["name"], row["configurations"], row["members"]) == ("whole", 4, 8)
    assert row["done"] == row["total"] > 0
    curves = page.curve(["whole"], "episode_return")["lines"]
    ranked = json.loads((whole / "sweep.json").read_text())["ranked"]
    names = [f"num_envs {row['num_envs']}, learning_rate {row['learning_rate']:.4g}" for row in ranked]
    assert [line["name"] for line in curves] == names and {line["size"] for line in curves} == {2}


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--num-envs", "2,x"], "num-envs"),
        (["--num-envs", "2,2"], "num_envs = '2,2':"),
        (["--activation", "tanh,rel"], "activation"),
        (["--num-envs", "2,0"], "num_envs 0: num_envs = 0:"),
        (["--num-minibatches", "1,3"], "num_minibatches 3: num_minibatches = 3:"),
        (["--num-minibatches", "1,2", "--clip-epsilon", "0.1,-1"], "clip_epsilon = -1.0:"),
        (["--num-envs", ",".join(map(str, range(1, 102)))], "must be at most 100"),
    ],
)
def test_bad_values_are_refused_in_a_line(args, line, tmp_path, capsys):
    run("sweep", "ppo", *SMALL, *args, "--out", tmp_path / "run", expect=2)
    [error] = capsys.readouterr().err.splitlines()
    assert line in error and not (tmp_path / "run").exists()
