"""Commands on environments of the host: what a run can be asked for afterwards, and what is refused."""

import json

import jax
import numpy as np
import pytest
from commands import run
from PIL import Image

import purerl
from purerl import envs, load_dataset, ppo
from purerl.loops.evaluation import player

SIZES = ["--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--eval-episodes", "2", "--workers", "none"]
CARTPOLE = ["--env", "gymnasium/CartPole-v1"]


def line(capsys, *args):
    capsys.readouterr()
    run(*args, expect=2)
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("purerl: error")]
    assert len(error) == 1
    return error[0]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """A run of two seeds in somebody's own environment, which draws itself and ends after five steps."""
    directory = tmp_path_factory.mktemp("host") / "run"
    evaluations = ["--eval-every", "16", "--keep-best"]
    run("train", "ppo", "--env", "host_envs:script", *SIZES, *evaluations, "--num-seeds", "2", "--total-steps", "64",
        "--out", directory)  # fmt: skip
    return directory


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    """A run in an environment of two agents."""
    directory = tmp_path_factory.mktemp("pair") / "run"
    run("train", "ppo", "--env", "host_envs:pair", *SIZES, "--total-steps", "64", "--out", directory)
    return directory


@pytest.mark.rest
def test_a_run_is_evaluated(scripted, capsys):
    assert len((scripted / "evaluations.jsonl").read_text().splitlines()) == 2 * 4 and (scripted / "best").is_dir()
    capsys.readouterr()
    run("eval", scripted, "--episodes", "3", "--json")
    result = json.loads(capsys.readouterr().out)
    policy = purerl.acting(scripted, 1, trust=True)
    obs, total = np.zeros(2, np.float32), 0.0
    for time in range(1, 6):
        action = policy(obs)
        obs, total = np.array([time, action], np.float32), total + 10 * time + action
    assert result["length_per_seed"] == [5, 5] and result["return_std_per_seed"] == [0, 0]
    assert result["return_per_seed"][1] == total


@pytest.mark.rest
def test_rivals_play_on_the_host(paired, capsys):
    capsys.readouterr()
    for rival in ("random", paired):
        run("eval", paired, "--episodes", "8", "--against", rival, "--json")
    random, itself = [json.loads(text + "}") for text in capsys.readouterr().out.split("\n}")[:2]]
    run("eval", paired, "--episodes", "8", "--json")
    alone = json.loads(capsys.readouterr().out)
    assert itself["return_per_seed"] == alone["return_per_seed"] and alone["length_per_seed"] == [4]
    assert random["return_per_seed"] != itself["return_per_seed"]
    assert sum(random[f"{name}_per_seed"][0] for name in ("won", "drawn", "lost")) == 1


@pytest.mark.rest
def test_a_film_has_the_pictures_of_the_library(scripted, tmp_path, capsys):
    run("render", scripted, "--out", tmp_path / "film.gif", "--episodes", "2", "--size", "64")
    assert "12 frames" in capsys.readouterr().out  # before each of five steps, and where they end
    with Image.open(tmp_path / "film.gif") as film:
        top = []
        for number in range(film.n_frames):
            film.seek(number)
            top.append(film.convert("RGB").getpixel((20, 20))[0])
    assert top[:5] == pytest.approx([0, 1, 2, 3, 4], abs=1)


@pytest.mark.rest
def test_no_picture_is_told_before_anything_is_played(paired, tmp_path, capsys):
    error = line(capsys, "render", paired, "--out", tmp_path / "film.gif")
    assert error.startswith("purerl: error: env = 'host_envs:pair': cannot be rendered")
    assert not (tmp_path / "film.gif").exists()


@pytest.mark.rest
def test_play_on_the_host_is_recorded(scripted, paired, tmp_path):
    run("record", scripted, "--agent", "1", "--episodes", "3", "--out", tmp_path / "run.safetensors")
    data = load_dataset(tmp_path / "run.safetensors", envs.make("host_envs:script"))
    assert data.obs[:, 0].tolist() == [0, 1, 2, 3, 4] * 3 and data.final_obs[:, 0].tolist() == [5] * 3
    assert data.terminated.tolist() == [False, False, False, False, True] * 3
    np.testing.assert_array_equal(data.obs[1:5, 1], data.action[:4])
    np.testing.assert_array_equal(data.reward, 10 * (data.obs[:, 0] + 1) + data.action)
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    run("record", "random", "--env", "host_envs:pair", "--episodes", "2", "--max-steps", "3", "--out", a)
    cut = load_dataset(a, envs.make("host_envs:pair"))
    assert len(cut.reward) == 2 * 2 * 3 and cut.truncated.sum() == 4 and not cut.terminated.any()
    run("record", "demos:always_one", "--env", "host_envs:script", "--episodes", "1", "--out", b)
    assert (load_dataset(b, envs.make("host_envs:script")).action == 1).all()


@pytest.mark.weekly
def test_opponents_play_in_workers(tmp_path, capsys):
    past = [
        "train",
        "ppo",
        "--env",
        "host_envs:pair",
        *SIZES[2:-2],
        "--num-envs",
        "4",
        "--opponents",
        "past",
        "--total-steps",
        "64",
    ]
    assert "cannot be cut into halves" in line(capsys, *past, "--double-buffering", "on", "--out", tmp_path / "halves")
    run(*past, "--workers", "2", "--out", tmp_path / "run")  # whose rows are not halved by themselves


@pytest.mark.weekly
def test_demonstrations_teach_on_the_host(tmp_path):
    demos = tmp_path / "demos.safetensors"
    run("record", "random", *CARTPOLE, "--episodes", "20", "--out", demos)
    sizes = ["--warmup-steps", "64", "--capacity", "128", "--batch-size", "4", "--memory-size", "8"]
    run("train", "r2d3", *CARTPOLE, *SIZES, *sizes, "--total-steps", "256", "--demos", demos, "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["alive_per_seed"] == [True]


@pytest.mark.rest
def test_a_plan_and_its_speed(monkeypatch, capsys):
    monkeypatch.setattr("purerl.runs.running.forecast.SECONDS", 0.1)  # so that nothing waits long
    capsys.readouterr()
    run("plan", "ppo", "--env", "host_envs:script", *SIZES, "--measure", "--json")
    plan = json.loads(capsys.readouterr().out)
    assert plan["peak_bytes"] > 0 and plan["flops_per_frame"] > 0 and plan["steps_per_second"] > 0


@pytest.mark.rest
def test_sweeps_are_of_what_the_program_has(tmp_path, capsys):
    run("sweep", "ppo", "--env", "host_envs:script", *SIZES, "--total-steps", "64", "--env-params",
        "reward_scale=0.1,1", "--out", tmp_path / "sweep")  # fmt: skip
    result = json.loads((tmp_path / "sweep" / "summary.json").read_text())
    assert result["return_per_seed"][1] == pytest.approx(10 * result["return_per_seed"][0], rel=0.1)
    error = line(capsys, "sweep", "ppo", "--env", "gymnasium/Pendulum-v1", "--env-params", "g=9,10")
    assert error.endswith("'gymnasium/Pendulum-v1': g: cannot be swept in a host environment")


@pytest.mark.parametrize(
    "args, words",
    [
        (("plan", "ppo", *CARTPOLE, "--target", "h100"), "target = 'h100': is not supported for the host environment"),
        (
            ("evolve", "value-loss", *CARTPOLE),
            "is a host environment, which JAX cannot trace; candidates are trained in one",
        ),
        (("train", "ppo", *CARTPOLE, "--resets", "few"), "resets = 'few':"),
        (("train", "ppo", *CARTPOLE, "--env-params", "randomise=x:0:1"), "randomise = 'x:0:1':"),
        (("train", "ppo", *CARTPOLE, "--num-devices", "2"), "num_devices = 2:"),
        (("train", "ppo", *CARTPOLE, "--shards", "2"), "shards = 2:"),
        (("train", "impala", *CARTPOLE, "--max-lag", "2", "--lag", "2"), "lag = 2.0:"),
        (("train", "ppo", "--env", "CartPole-v1", "--ahead", "2"), "ahead = 2:"),
    ],
)
def test_what_the_host_cannot_do_is_refused(args, words, capsys):
    assert words in line(capsys, *args)


CONFIG = ppo.Config(num_envs=2, num_steps=8, hidden_sizes=(8,), total_steps=64)


def test_whole_programs_are_refused_in_python():
    env, key = envs.make("host_envs:script"), jax.random.key(0)
    trainer = ppo.make_trainer(CONFIG, env)
    policy = jax.eval_shape(lambda: trainer.learner.policy(trainer.init(key).learner))
    for call in (
        lambda: ppo.make_train(CONFIG, env),
        lambda: purerl.train_population(lambda config: ppo.make_train(config, env), CONFIG, key),
        lambda: purerl.plan(lambda config: ppo.make_train(config, env), CONFIG, key),
        lambda: purerl.evaluate(key, env, trainer.learner, policy),
        lambda: purerl.record(key, env, player(trainer.learner, policy), 2),
    ):
        with pytest.raises(purerl.ConfigError, match="is a host environment, which JAX cannot trace; purerl"):
            call()


@pytest.mark.rest
def test_a_training_in_chunks_is_that_of_the_command_line(tmp_path):
    env = envs.make("host_envs:script")
    run("train", "ppo", "--env", "host_envs:script", *SIZES, "--total-steps", "64", "--out", tmp_path / "run")
    seen = []
    result = purerl.train_in_chunks(
        ppo.make_trainer(CONFIG, env),
        jax.random.key(0),
        4,
        lambda state, metrics: seen.append(len(metrics["loss"])),
        every=2,
    )
    assert sum(seen) == 4 and seen[0] <= 2
    policy = ppo.make_learner(CONFIG, env).policy(result.state.learner)
    there = purerl.load(tmp_path / "run", trust=True).policy
    for mine, theirs in zip(jax.tree.leaves(policy), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(mine, theirs[0], atol=1e-6)
    stopped = purerl.train_in_chunks(ppo.make_trainer(CONFIG, env), jax.random.key(0), 4, lambda *_: True, every=1)
    assert int(stopped.state.iteration.low) == 1 == len(stopped.metrics["loss"])
