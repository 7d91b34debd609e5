"""The command line, as a person meets it: files, exit codes and one line for each problem."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from commands import run

import purerl
from purerl import a2c, ppo
from purerl.cli import ranges
from purerl.cli.machine import is_small
from purerl.errors import ConfigError
from purerl.hardware import absent
from purerl.runs.describing.run_directory import LOCK
from purerl.types import Situation

ROOT = Path(purerl.__file__).parent.parent
SHORT = ["--env", "CartPole-v1", "--total-steps", "1024", "--eval-episodes", "2"]
SMALL = [*SHORT, "--hidden-sizes", "8"]
STEPS = 12 * 512 + 100


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two agents, for twelve iterations of 512 steps."""
    directory = tmp_path_factory.mktemp("runs") / "cartpole"
    run("train", "ppo", *SMALL, "--total-steps", str(STEPS), "--num-seeds", "2", "--seed", "5", "--out", str(directory))
    return directory


def test_run_directory(trained):
    names = {"config.json", "metrics.jsonl", "quantiles.jsonl", "summary.json", "policy.safetensors", "policy.json"}
    names |= {"times.jsonl", "curve.png"}
    assert {path.name for path in trained.iterdir()} == {*names, "checkpoints", LOCK}
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["status"] == "completed" and summary["seeds"] == [5, 6]
    assert summary["env_steps"] == 12 * 512
    assert summary["return_mean"] == np.mean(summary["return_per_seed"]) > 0
    for name in ("wall_seconds", "compile_seconds", "steps_per_second"):
        assert summary[name] > 0
    assert summary["device"]["platform"] and summary["versions"]["jax"] == jax.__version__
    config = json.loads((trained / "config.json").read_text())
    assert config["config"]["total_steps"] == STEPS and config["config"]["hidden_sizes"] == [8]


@pytest.mark.weekly
@pytest.mark.parametrize("algo", ["dqn", "r2d2"])
def test_replay_is_spread_over_devices(algo, tmp_path):
    small = ["--warmup-steps", "512", "--capacity", "1024", "--num-seeds", "2"]
    run("train", algo, *SMALL, *small, "--out", str(tmp_path / "run"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "completed" and summary["device"]["count"] == jax.device_count()
    first, second = (json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-2:])
    assert (first["seed"], second["seed"]) == (0, 1) and first["loss"] != second["loss"]


def test_metrics_have_a_row_for_each_iteration_and_seed(trained):
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [(r["iteration"], r["seed"]) for r in rows] == [(i + 1, s) for i in range(12) for s in (5, 6)]
    assert all(r["env_steps"] == r["iteration"] * 512 for r in rows)
    assert {"episode_return", "loss", "entropy", "grad_norm"} <= rows[0].keys()
    assert rows[-1]["episode_return"] > 0
    curves = np.array([[r["loss"] for r in rows if r["seed"] == seed] for seed in (5, 6)])
    assert np.all(np.isfinite(curves)) and np.any(curves[0] != curves[1])


def test_quantiles_of_the_population(trained):
    rows = [json.loads(line) for line in (trained / "quantiles.jsonl").read_text().splitlines()]
    members = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == len(members) // 2 and all(row["alive"] == 2 for row in rows)
    finished = [i for i in range(len(rows)) if all(members[2 * i + s]["episode_return"] is not None for s in (0, 1))]
    assert len(finished) > 6
    for i in finished:
        a, b = (members[2 * i + s]["episode_return"] for s in (0, 1))
        assert rows[i]["env_steps"] == members[2 * i]["env_steps"]
        np.testing.assert_allclose(rows[i]["episode_return"]["0.5"], (a + b) / 2, rtol=1e-6)
    summary = json.loads((trained / "summary.json").read_text())
    iqm = summary["return_iqm"]
    assert iqm["value"] > 0 and iqm["low"] is iqm["high"] is None and summary["alive_per_seed"] == [True, True]


@pytest.mark.weekly
@pytest.mark.usefixtures("as_shipped")
def test_agents_have_the_same_policies_alone_and_in_batches(tmp_path):
    seeds = ["--num-seeds", "3", "--seed", "4"]
    for name, more in (("all", seeds), ("some", [*seeds, "--agents-at-once", "2"]), ("lone", ["--seed", "6"])):
        run("train", "ppo", *SMALL, *more, "--out", str(tmp_path / name))
    policies = [safetensors.numpy.load_file(tmp_path / name / "policy.safetensors") for name in ("all", "some", "lone")]
    whole, batches, lone = policies
    assert whole.keys() == batches.keys() == lone.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], batches[name])
        np.testing.assert_array_equal(whole[name][2], lone[name][0])
    rows = [json.loads(line) for line in (tmp_path / "some" / "metrics.jsonl").read_text().splitlines()]
    assert [(r["iteration"], r["seed"]) for r in rows] == [(1, 4), (1, 5), (2, 4), (2, 5), (1, 6), (2, 6)]


@pytest.mark.weekly
def test_sweep(tmp_path, capsys):
    """Two rates by two gravities by two seeds; the ranking, its file, its picture; and the policies read back."""
    out = tmp_path / "sweep"
    run(
        *("sweep", "ppo", *SHORT, "--learning-rate", "1e-4,1e30", "--max-grad-norm", "1e30"),
        *("--env-params", "gravity=5:20:lin:2", "--num-seeds", "2", "--out", str(out)),
    )
    ranking = json.loads((out / "sweep.json").read_text())
    assert ranking["swept"] == {"learning_rate": [1e-4, 1e-4, 1e30, 1e30], "env.gravity": [5.0, 20.0, 5.0, 20.0]}
    ranked = ranking["ranked"]
    assert [row["config"] for row in ranked[:2]] == sorted([0, 1], key=lambda c: -np.mean(in_order(ranked, c)))
    assert {row["config"] for row in ranked[2:]} == {2, 3} and all(row["value"] is None for row in ranked[2:])
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    table = capsys.readouterr().out
    assert "interquartile mean" in table and "died" in table
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {(r["config"], r["seed"]) for r in rows} == {(c, s) for c in range(4) for s in (0, 1)}
    run("eval", str(out), "--episodes", "2", "--json")
    result = json.loads(capsys.readouterr().out)
    assert len(result["return_per_seed"]) == 8 and result["members"][3] == {"config": 1, "seed": 1}
    run("compare", str(out), "--json")
    compared = json.loads(capsys.readouterr().out)
    assert [row["per_seed"] for row in compared["runs"]] == [row["returns"] for row in ranked]
    assert set(compared["importance"][str(out)]["shares"]) == {
        "learning_rate",
        "env.gravity",
        "together",
        "seeds",
    }


def in_order(ranked, config):
    return next(row["returns"] for row in ranked if row["config"] == config)


@pytest.mark.weekly
@pytest.mark.usefixtures("as_shipped")
def test_sweep_member_equals_its_lone_run(tmp_path):
    run("sweep", "ppo", *SMALL, "--gamma", "0.9,0.95", "--num-seeds", "2", "--out", str(tmp_path / "sweep"))
    run("train", "ppo", *SMALL, "--gamma", "0.95", "--seed", "1", "--out", str(tmp_path / "lone"))
    swept, lone = (safetensors.numpy.load_file(tmp_path / n / "policy.safetensors") for n in ("sweep", "lone"))
    for name in lone:
        np.testing.assert_array_equal(swept[name][3], lone[name][0])


def test_compare(trained, tmp_path, capsys):
    run("compare", str(trained), str(trained), "--json")
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert len(rows) == 2 and rows[1]["first_is_better"]["value"] == 0.5
    run("compare", str(trained), str(trained))
    assert "P(first" in capsys.readouterr().out
    run("compare", str(trained), expect=2)
    assert "two or more" in capsys.readouterr().err


def test_one_agent_plays(trained, capsys):
    """By its number the episodes of the final evaluation; the best one others than those it was chosen by."""
    summary = json.loads((trained / "summary.json").read_text())
    returns = summary["return_per_seed"]
    run("eval", f"{trained}:1", "--episodes", "2", "--json")
    second = json.loads(capsys.readouterr().out)
    assert second["return_per_seed"] == returns[1:] and second["members"] == [{"seed": 6}]
    run("eval", f"{trained}:best", "--episodes", "2", "--json")
    best = json.loads(capsys.readouterr().out)
    assert best["chosen"]["agent"] == int(np.argmax(returns)) and best["chosen"]["score"] == max(returns)
    assert best["return_per_seed"] != [max(returns)] and len(best["return_per_seed"]) == 1
    run("eval", f"{trained}:best", "--episodes", "2")
    text = capsys.readouterr().out
    assert text.startswith(f"agent {np.argmax(returns)} of ") and "best of 2 by the mean return of the final" in text
    run("eval", f"{trained}:2", expect=2)
    assert "has agents 0 to 1" in capsys.readouterr().err


@pytest.mark.weekly
def test_plan(capsys):
    """A plan runs nothing; what cannot fit ends with code 4 and names what is large."""
    run("plan", "ppo", *SHORT, "--num-seeds", "64", "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["members"] == result["batch_size"] == 64 and result["fits"] > 64
    assert result["peak_bytes"] > 64 * 100_000 and result["compile_seconds"] > 0
    # Schulman's network on CartPole: 17.8 kFLOP forward, 52.4 kFLOP for a gradient sample, 4 epochs, and both critics.
    assert 0.22e6 < result["flops_per_frame"] < 0.27e6
    run("plan", "ppo", *SHORT, "--num-seeds", "64")
    assert "agents that fit" in capsys.readouterr().out


def test_plan_for_a_gpu_that_is_not_here(capsys):
    args = ["plan", "a2c", "--env", "CartPole-v1", "--num-envs", "2", "--hidden-sizes", "8", "--target"]
    run(*args, "h20", expect=2)
    assert "target = 'h20': unknown; nearest: h200" in capsys.readouterr().err
    run(*args, "h200", "--measure", expect=2)
    assert "measure = True:" in capsys.readouterr().err
    try:
        absent.device("h200")
    except ConfigError:
        run(*args, "h200", expect=2)
        assert "pip install 'purerl[gpu-plan]'" in capsys.readouterr().err
        return
    run(*args, "h200", "--num-seeds", "4", "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["members"] == 4 and result["available_bytes"] == 0.75 * 141e9 and result["fits"] > 1000
    assert result["kernels"] == sum(loop["runs"] * loop["kernels"] for loop in result["loops"])
    assert result["traffic_bytes"] > result["peak_bytes"] > 0
    assert 0 < result["frames_per_second"] < result["frames_per_second_at_most"]
    iterations = a2c.Config(num_envs=2).num_iterations
    assert [loop["runs"] for loop in result["loops"] if loop["label"] == "iterations"] == [iterations]
    run(*args, "h200")
    output = capsys.readouterr().out
    assert "speed expected" in output and "rollout" in output and "NVIDIA H200" in output


@pytest.mark.parametrize("command", ["plan", "train"])
def test_what_cannot_fit_is_told(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("purerl.population.devices.available_bytes", lambda devices: 2**30)  # a small machine
    sizes = ["--num-envs", str(2**30), "--num-steps", "1", "--total-steps", str(2**31)]
    out = ["--out", str(tmp_path / "x")] if command == "train" else []
    run(command, "ppo", "--env", "CartPole-v1", *sizes, *out, expect=4)
    err = capsys.readouterr().err
    assert "out of memory" in err and "largest: actors" in err and len(err.splitlines()[-1]) < 400
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "count"), [("1e-4:1e-2:log:3", 3), ("0.1,0.2", 2), ("1e-4:1e-2:log", 5), ("0:1:lin:11", 11)]
)
def test_ranges(text, count):
    result = ranges.configurations({"x": text}, num_samples=5, seed=0)["x"]
    assert len(result) == count
    if text.endswith("log:3"):
        np.testing.assert_allclose(result, [1e-4, 1e-3, 1e-2])
    if text.endswith("log"):
        assert all(1e-4 <= x <= 1e-2 for x in result) and len(set(result)) == 5


def test_random_ranges_are_crossed_with_grids():
    result = ranges.configurations({"a": "0:1:lin", "b": "1,2", "c": "1:10:log"}, num_samples=3, seed=1)
    assert {len(column) for column in result.values()} == {6}
    assert len(set(zip(result["a"], result["c"], strict=True))) == 3 and sorted(result["b"]) == [1] * 3 + [2] * 3


def test_eval(trained, capsys):
    run("eval", str(trained), "--episodes", "20", "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["return_mean"] == np.mean(result["return_per_seed"]) > 8
    assert len(result["return_per_seed"]) == 2 and result["episodes"] == 20
    run("eval", str(trained), "--episodes", "20")
    assert "return " + ", ".join(f"{x:.1f}" for x in result["return_per_seed"]) in capsys.readouterr().out


@pytest.mark.weekly
def test_policy_in_gymnasium(tmp_path):
    """Two agents learn to balance the pole, and the first plays Gymnasium's as well as ours: both means within the
    other's 99 % interval."""
    steps = ["--total-steps", "3e5", "--num-seeds", "2", "--seed", "5", "--out", str(tmp_path / "run")]
    run("train", "ppo", "--env", "CartPole-v1", *steps)
    loaded = purerl.load(tmp_path / "run")
    policy = jax.tree.map(lambda x: x[0], loaded.policy)
    exploit = jax.jit(lambda obs: loaded.learner.exploit(policy, Situation(obs, ()), jax.random.key(0))[0])
    vector = gymnasium.make_vec("CartPole-v1", num_envs=64, vectorization_mode="sync")
    obs, _ = vector.reset(seed=0)
    total, running = np.zeros(64), np.ones(64, bool)
    while running.any():
        obs, reward, terminated, truncated, _ = vector.step(np.asarray(exploit(jnp.asarray(obs))))
        total += reward * running
        running &= ~(terminated | truncated)
    result = purerl.evaluate(jax.random.key(1), loaded.env, loaded.learner, policy, num_episodes=64)
    ours = np.asarray(result.episode_return)
    half_width = 2.6 * np.hypot(ours.std(), total.std()) / np.sqrt(64)
    assert abs(ours.mean() - total.mean()) <= half_width + 1e-9
    assert total.mean() >= 475


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "ppo"], ["--env"]),
        (["train", "ppo", *SHORT, "--preset", "minatr"], ["preset = 'minatr'", "minatar"]),
        (["train", "ppo", "--env", "Cartpole-v1"], ["env = 'Cartpole-v1'", "CartPole-v1"]),
        (["train", "ppo", *SHORT, "--num-envs", "four"], ["--num-envs", "'four'", "whole number"]),
        (["train", "ppo", *SHORT, "--num-envs", "0"], ["num_envs = 0", "[1, 2147483648)"]),
        (["train", "ppo", *SHORT, "--gamma", "1.5"], ["gamma = 1.5", "[0, 1]"]),
        (["train", "ppo", *SHORT, "--activation", "rleu"], ["--activation", "'rleu'", "relu"]),
        (["train", "ppo", *SHORT, "--num-minibatches", "3"], ["num_minibatches = 3", "512", "nearest valid: 2, 4"]),
        (["train", "ppo", "--env", "CartPole-v1", "--total-steps", "511"], ["total_steps = 511", "512"]),
        (["train", "ppo", *SHORT, "--seed", "-1"], ["seed = -1"]),
        (["train", "ppo", *SHORT, "--seed", str(2**32)], ["seed = 4294967296"]),
        (["train", "ppo", *SHORT, "--env-params", "gravity"], ["env_params", "NAME=VALUE"]),
        (["train", "ppo", *SHORT, "--agents-at-once", "-1"], ["agents_at_once = -1"]),
        (["sweep", "ppo", *SHORT], ["nothing to sweep", "LOW:HIGH"]),
        (["sweep", "ppo", *SHORT, "--gamma", "0.9:0.5:lin:3"], ["gamma = '0.9:0.5:lin:3'", "LOW < HIGH"]),
        (["sweep", "ppo", *SHORT, "--gamma", "0:1:log:3"], ["gamma", "above 0"]),
        (["sweep", "ppo", *SHORT, "--gamma", "0.5,x"], ["gamma = '0.5,x'"]),
        (["sweep", "ppo", *SHORT, "--num-envs", "2:8:lin:2"], ["--num-envs", "whole number"]),
        (["sweep", "ppo", *SHORT, "--env-params", "gravty=1,2"], ["gravty", "gravity"]),
        (["compare", str(ROOT / "tests" / "summaries"), "x"], ["summaries/summary.json", "lacks", "alive_per_seed"]),
        (["compare", "/nonexistent/run", "x"], ["/nonexistent/run", "summary.json"]),
        (["eval", "/nonexistent/run"], ["/nonexistent/run", "policy.json"]),
        (["eval", "x", "--episodes", "0"], ["episodes = 0", "[1, 2147483648)"]),
        (["list", "env"], ["'env'", "envs"]),
    ],
)
def test_bad_input(args, words, capsys, monkeypatch, tmp_path):
    """Exit code 2 and one line, and none such as "compiling ...". More: ``test_bad_input.py``."""
    monkeypatch.chdir(tmp_path)
    run(*args, expect=2)
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and err.startswith("purerl: error: ")
    for word in words:
        assert word in err
    assert not list(tmp_path.iterdir())


def test_all_problems_at_once(capsys):
    run("train", "ppo", "--env", "Nope", "--gamma", "2", "--num-minibatches", "7", "--seed", "-3", expect=2)
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 4
    for word in ("seed", "env", "gamma", "num_minibatches"):
        assert f"error: {word} = " in err


def test_a_run_is_never_overwritten_unasked(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    before = list(tmp_path.iterdir())
    run("train", "ppo", *SHORT, "--out", str(tmp_path), expect=2)
    assert "already in use" in capsys.readouterr().err and list(tmp_path.iterdir()) == before
    run("train", "ppo", *SHORT, "--out", str(tmp_path / "notes.txt"), expect=2)
    assert "notes.txt" in capsys.readouterr().err and (tmp_path / "notes.txt").read_text() == "mine"


def test_damaged_policies_are_refused(trained, tmp_path, capsys):
    for name in ("policy.safetensors", "policy.json"):
        copy = tmp_path / name
        copy.mkdir()
        for file in ("policy.safetensors", "policy.json"):
            (copy / file).write_bytes((trained / file).read_bytes())
        (copy / name).write_bytes((trained / name).read_bytes()[:100])
        run("eval", str(copy), expect=2)
        err = capsys.readouterr().err
        assert name in err and len(err.splitlines()) == 1


def test_divergence_is_told(tmp_path, capsys):
    """So are what was not finite first, what may help, and the preset that would have fitted."""
    args = ["--value-coef", "3e38", "--out", str(tmp_path / "x")]
    run("train", "ppo", "--env", "Pendulum-v1", "--total-steps", "10240", "--eval-episodes", "2", *args, expect=3)
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["status"] == "diverged"
    err = capsys.readouterr().err
    assert "Pendulum-v1 has continuous actions; --preset continuous has" in err
    assert "agent 0 (seed 0) diverged in iteration 1: the loss was not finite\n" in err
    assert "a smaller --learning-rate or --max-grad-norm makes smaller steps; --normalize-reward scales" in err


@pytest.mark.weekly
def test_interrupt_saves(tmp_path):
    """SIGINT ends the chunk, saves, evaluates and exits 130; without a terminal there are plain lines."""
    command = [
        sys.executable,
        "-m",
        "purerl.cli",
        "train",
        "ppo",
        *SHORT,
        "--total-steps",
        "1e9",
        "--out",
        "run",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ | {"LANG": "C"})
    log = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in err and "compiled in" in err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "interrupted" and summary["env_steps"] < 1e9
    assert len(log.read_text().splitlines()) == summary["env_steps"] // 512


@pytest.mark.weekly
@pytest.mark.parametrize("kept", [True, False])
def test_compiled_programs_are_kept_where_told(kept, tmp_path):
    """In the directory that is named; with "off" nowhere, not in the home directory either."""
    command = [sys.executable, "-m", "purerl.cli", "train", "a2c", *SMALL]
    command += ["--out", str(tmp_path / "run")]
    cache = tmp_path / "cache"
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    env["HOME"] = str(tmp_path / "home")
    command += ["--compilation-cache", str(cache) if kept else "off"]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=200)
    assert (cache.exists() and any(cache.iterdir())) == kept
    assert not (tmp_path / "home" / ".cache" / "purerl").exists()  # where matplotlib keeps its fonts


@pytest.mark.weekly
def test_peak_memory_does_not_grow_with_training():
    """The program that runs a chunk is the same however long the training; and a chunk's rows are scalars."""
    from purerl import envs, loops, ppo

    def peak(iterations):
        trainer = ppo.make_trainer(ppo.Config(total_steps=512 * iterations), envs.make("CartPole-v1"))
        state = jax.eval_shape(trainer.init, jax.random.key(0))
        return jax.jit(loops.chunk(trainer, 256)).lower(state, 1).compile().memory_analysis().peak_memory_in_bytes

    assert peak(10) == peak(1000)


def test_one_thread_is_for_a_lone_small_agent_of_vectors():
    def small(env="jaxmarl/MPE_simple_spread_v3", num_seeds=1, **settings):
        return is_small(
            SimpleNamespace(env=env, num_seeds=num_seeds, devices_per_agent=1, num_devices=0, processes=""),
            ppo.Config(num_envs=16, **settings),
        )

    assert small() and small("CartPole-v1")
    assert not small("Breakout-MinAtar") and not small("jaxmarl/SMAX/3m") and not small(num_seeds=2)
    assert not small(hidden_sizes=(64, 256))
