"""Runs whose evaluations draw actions: their numbers wherever they are shown, and that they say so."""

import json

import jax
import numpy as np
import pytest
from commands import run

import purerl
from purerl import ConfigError, a2c, counters, envs
from purerl.runs.reading import comparison, evaluation, loading, overview, run_curves

SIZES = ["--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--total-steps", "96", "--num-seeds", "2"]
A2C = ["train", "a2c", "--env", "CartPole-v1", *SIZES, "--eval-episodes", "6"]
EPISODES = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run whose evaluations are sampled, and the same with greedy ones."""
    folder = tmp_path_factory.mktemp("sampled")
    for name, more in (("sampled", ["--sample"]), ("greedy", [])):
        run(*A2C, *more, "--eval-every", 48, "--out", folder / name)
    return folder


def summary(directory):
    return json.loads((directory / "summary.json").read_text())


@pytest.mark.rest
def test_evaluations_of_a_training_are_sampled(runs, capsys):
    """All of them, as `purerl eval` repeats them; the training itself is the same."""
    drawn, likely = summary(runs / "sampled"), summary(runs / "greedy")
    assert drawn["sampled"] is True and "sampled" not in likely
    assert drawn["return_per_seed"] != likely["return_per_seed"]
    for file in ("policy.safetensors", "metrics.jsonl"):
        assert (runs / "sampled" / file).read_bytes() == (runs / "greedy" / file).read_bytes()
    rows = [json.loads(line) for line in (runs / "sampled/evaluations.jsonl").read_text().splitlines()]
    assert [row["eval_return"] for row in rows[-2:]] == drawn["return_per_seed"]
    for name, sample in (("sampled", ["--sample"]), ("greedy", [])):
        for directory in (runs / "sampled", runs / "greedy"):  # whose policies are the same
            capsys.readouterr()
            run("eval", directory, "--episodes", EPISODES, *sample, "--json")
            result = json.loads(capsys.readouterr().out)
            assert result["return_per_seed"] == summary(runs / name)["return_per_seed"]
            assert result.get("sampled", False) == bool(sample)


@pytest.mark.rest
def test_whatever_shows_them_says_so(runs, capsys, tmp_path):
    for name, words in (("sampled", "sampled "), ("greedy", "")):
        run("eval", runs / name, "--episodes", EPISODES, *(["--sample"] if words else []))
        shown = capsys.readouterr().out
        assert f"means of 6 {words}episodes" in shown and f"\n{words}return " in shown
    run("compare", runs / "sampled", runs / "greedy")
    shown = capsys.readouterr().out
    assert "1 of 2 returns are of sampled actions, the others of the most likely ones" in shown
    assert shown.count("│ sampled actions") == 1
    rows = comparison.compare([str(runs / "sampled"), str(runs / "greedy")], "mean")
    assert rows["told"] == "" and not any("sampled" in row for row in rows["runs"])  # returns of the trainings
    listed = {row["name"]: row["sampled"] for row in overview.answers(runs).runs()["runs"]}
    assert listed == {"sampled": True, "greedy": False}
    lines = run_curves.lines([runs / "sampled", runs / "greedy"], "eval_return")
    assert [line.name for line in lines] == ["sampled: sampled", "greedy"]
    assert [line.name for line in run_curves.lines([runs / "sampled"], "loss")] == ["sampled"]
    run("record", runs / "sampled", "--sample", "--episodes", 2, "--out", tmp_path / "data.safetensors", "--json")
    assert json.loads(capsys.readouterr().out)["policy"]["sampled"] is True
    run("render", runs / "sampled", "--sample", "--max-steps", 4)
    assert "sampled, return" in capsys.readouterr().out
    assert "agent 0, sampled, return" in overview.answers(runs).run("sampled")["filmed"]["film.gif"]
    run("eval", f"{runs / 'sampled'}:best", "--episodes", 2)
    assert "by the mean sampled return of the final evaluation" in " ".join(capsys.readouterr().out.split())
    told = evaluation.anew(loading.agent(runs / "sampled", "best"))
    assert "in 6 other sampled episodes" in told.words


@pytest.mark.rest
def test_a_ranking_says_so(tmp_path, capsys):
    run("sweep", *A2C[1:], "--learning-rate", "0.001,0.01", "--sample", "--out", tmp_path / "sweep")
    assert "sampled" in capsys.readouterr().out
    assert json.loads((tmp_path / "sweep/sweep.json").read_text())["sampled"] is True


@pytest.mark.rest
def test_a_resumed_run_may_change_it_unless_agents_stop_by_it(runs, tmp_path, capsys):
    config = json.loads((runs / "sampled/config.json").read_text())
    assert config["options"]["sample"] is True
    run(*A2C, "--sample", "--out", tmp_path / "run")
    run("resume", tmp_path / "run", "--total-steps", 128)
    assert summary(tmp_path / "run")["sampled"] is True
    run("resume", tmp_path / "run", "--no-sample")
    assert "sampled" not in summary(tmp_path / "run") and "changed: sample: True -> False" in capsys.readouterr().err
    run(*A2C, "--sample", "--eval-every", 48, "--stop-at", 1000, "--out", tmp_path / "stops")
    assert json.loads((tmp_path / "stops/config.json").read_text())["stop"]["sample"] is True
    run("resume", tmp_path / "stops", "--no-sample", expect=2)
    assert "sample = False: the run has True" in capsys.readouterr().err
    run("resume", tmp_path / "stops")  # as it was
    run("train", "--config", tmp_path / "stops/config.json", "--out", tmp_path / "again")
    assert summary(tmp_path / "again")["return_per_seed"] == summary(tmp_path / "stops")["return_per_seed"]


@pytest.mark.rest
def test_acting_and_training_from_python(runs, tmp_path):
    """Same seed, same actions; each call draws anew. Evaluations in chunks are those of `evaluate`."""
    obs = np.zeros((64, 4))
    acts = [purerl.acting(runs / "sampled", sample=True, seed=seed) for seed in (0, 0, 1)]
    first, same, other = ([act(obs) for _ in range(2)] for act in acts)
    np.testing.assert_array_equal(first, same)
    assert np.any(first[0] != first[1]) and np.any(first[0] != other[0])
    assert len(np.unique(purerl.acting(runs / "sampled")(obs))) == 1
    config = a2c.Config(num_envs=2, num_steps=8, hidden_sizes=(8,), total_steps=48)
    trainer, key, states = a2c.make_trainer(config, envs.make("CartPole-v1")), jax.random.key(0), {}

    def note(state, metrics):
        states[counters.number(state.iteration)] = trainer.learner.policy(jax.device_get(state.learner))

    found = purerl.train_in_chunks(trainer, key, 3, note, eval_episodes=5, sample=True)
    episodes = evaluation.keys(key[None], 0)[0]
    for sample in (True, False):
        played = purerl.evaluate(episodes, trainer.fleet.env, trainer.learner, states[3], 5, sample=sample)
        assert (found.metrics["eval_return"][-1] == pytest.approx(float(np.mean(played.episode_return)))) == sample
    purerl.save(tmp_path / "run", found, a2c, config, "CartPole-v1", eval_episodes=5, sample=True)
    assert purerl.load(tmp_path / "run").summary["sampled"] is True
    with pytest.raises(ConfigError, match="sample = True: has no effect without eval_episodes"):
        purerl.train_in_chunks(trainer, key, 3, sample=True)


@pytest.mark.rest
def test_games_levels_and_hosts(tmp_path, capsys):
    """Both sides of a game sample; levels and environments of the host are played so, too."""
    sizes = ["--num-envs", "2", "--num-steps", "9", "--hidden-sizes", "4", "--num-minibatches", "1", "--eval-episodes"]
    play = ["train", "ppo", *sizes, "2", "--total-steps", "18", "--sample", "--env"]
    run(*play, "TicTacToe-v0", "--torso", "plain", "--out", tmp_path / "game")
    for against in (tmp_path / "game", "random"):
        run("eval", tmp_path / "game", "--against", against, "--sample", "--episodes", 4, "--json")
    run(*play, "Maze-v0", "--env-params", "max_steps=4", "--out", tmp_path / "maze")
    capsys.readouterr()
    run("eval", tmp_path / "maze", "--levels", "random:2:0", "--sample", "--episodes", 2)
    assert "2 sampled episode(s) each" in capsys.readouterr().out
    run(*play, "gymnasium/CartPole-v1", "--workers", "none", "--out", tmp_path / "host")
    found = summary(tmp_path / "host")
    assert found["sampled"] is True and found["return_per_seed"] == found["length_per_seed"]


def test_one_line_where_there_is_nothing_to_sample(capsys, tmp_path):
    """Before anything compiles or is written, for a training, a plan and a dry run."""
    start = "--env", "Pendulum-v1", "--sample"
    for command in (("train", "td3", *start, "--out", tmp_path / "run"), ("plan", "ddpg", *start)):
        run(*command, expect=2)
        error = capsys.readouterr().err.strip().splitlines()
        assert len(error) == 1 and "sample = True: the algorithm's policy has no distribution of actions" in error[0]
    assert not (tmp_path / "run").exists()
    run("record", "random", "--env", "CartPole-v1", "--sample", "--out", tmp_path / "data", expect=2)
    assert "sample = True: random is not a run" in capsys.readouterr().err
