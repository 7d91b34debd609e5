"""The levels of a run: kept in a file, drawn, and played in, from the command line."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run
from safetensors.numpy import load_file

from purerl import envs
from purerl.curricula import buffer as buffers
from purerl.errors import ConfigError
from purerl.runs.reading import levels, loading
from purerl.store import card_files
from purerl.types import Situation

MAZE = ["--env", "Maze-v0", "--env-params", "max_steps=8", "walls=4"]
SMALL = ["--num-envs", "4", "--num-steps", "16", "--num-minibatches", "1", "--hidden-sizes", "8"]
SMALL += ["--eval-episodes", "2"]
TRAIN = ["train", "ppo", *MAZE, *SMALL, "--total-steps", "1024", "--curriculum", "plr", "--level-capacity", "8"]


def line(capsys, *args):
    run(*args, expect=2)
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("purerl: error")]
    assert len(error) == 1
    return error[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of two agents."""
    directory = tmp_path_factory.mktemp("levels") / "run"
    run(*TRAIN, "--num-seeds", "2", "--out", directory)
    return directory


@pytest.fixture(scope="module")
def env():
    return envs.make("Maze-v0", max_steps=8, walls=4)


@pytest.mark.rest
def test_a_run_keeps_the_levels_of_its_agents(place, env):
    result = levels.load(place / levels.FILE, env, "Maze-v0")
    assert result.names[0] == "agent 0, level 0" and len({name.split(",")[0] for name in result.names}) == 2
    assert np.all(np.isfinite(result.score)) and result.levels.walls.shape == (len(result.names), 13, 13)
    _, obs = jax.vmap(env.begin)(result.levels)
    assert obs["direction"].sum(axis=1).tolist() == [1] * len(result.names)
    assert (place / levels.PICTURE).stat().st_size > 1000


def player_of(run):
    """``return_of(agent, level)`` of one episode of a run, step by step."""
    begin, step, exploit = jax.jit(run.env.begin), jax.jit(run.env.step), jax.jit(run.learner.exploit)

    def return_of(agent, level):
        policy = jax.tree.map(lambda x: x[agent], run.policy)
        state, obs = begin(level)
        carry, total = run.learner.init_carry(1), 0.0
        while True:
            here = Situation(jax.tree.map(lambda x: x[None], obs), carry)
            action, carry = exploit(policy, here, jax.random.key(0))
            state, made = step((), state, action[0])
            obs, total = made.next_obs, total + float(made.reward)
            if made.terminated | made.truncated:
                return total

    return return_of


@pytest.mark.rest
def test_each_level_is_played(place, env, capsys):
    run("eval", place, "--levels", place / levels.FILE, "--episodes", "2", "--json")
    result = json.loads(capsys.readouterr().out)
    of_file = levels.load(place / levels.FILE, env, "Maze-v0")
    assert result["levels"] == of_file.names and result["unfinished_per_seed"] == [0, 0]
    return_of = player_of(loading.load(place))
    for agent in range(2):
        for i in range(0, len(of_file.names), 3):
            alone = return_of(agent, jax.tree.map(lambda x, i=i: x[i], of_file.levels))
            assert result["return_per_level"][agent][i] == pytest.approx(alone, abs=1e-6)
            assert result["solved_per_level"][agent][i] == float(alone > 0)


@pytest.mark.rest
def test_the_worst_levels_are_told(place, capsys, monkeypatch):
    monkeypatch.setattr("purerl.runs.reading.levels.ROWS", 64)  # in several parts
    run("eval", place, "--levels", "random:200:3", "--episodes", "1", "--json")
    result = json.loads(capsys.readouterr().out)
    returns = np.sort(result["return_per_level"], axis=1)
    assert returns.shape == (2, 200)
    for share, count in {"0.01": 2, "0.05": 10, "0.1": 20}.items():
        np.testing.assert_allclose(result["return_worst"][share], returns[:, :count].mean(axis=1))
    monkeypatch.undo()
    run("eval", place, "--levels", "random:200:3", "--episodes", "1", "--json")
    np.testing.assert_array_equal(json.loads(capsys.readouterr().out)["return_per_level"], result["return_per_level"])
    run("eval", place, "--levels", "random:200:4", "--episodes", "1", "--json")
    assert json.loads(capsys.readouterr().out)["return_per_level"] != result["return_per_level"]


@pytest.mark.rest
def test_levels_too_large_to_keep_lose_nothing_else(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(card_files, "MOST_BYTES", 1000)  # a bound that a test can reach
    run(*TRAIN, "--num-seeds", "2", "--out", tmp_path / "run")  # of which the program is compiled
    assert "the levels are not saved: " in capsys.readouterr().err
    assert (tmp_path / "run" / "summary.json").exists() and not (tmp_path / "run" / levels.FILE).exists()


@pytest.mark.rest
def test_held_out_mazes_have_names(place, capsys):
    run("eval", place, "--levels", "held-out", "--episodes", "1")
    output = capsys.readouterr().out
    assert "Labyrinth2" in output and "solved, means over agents: mean" in output and "worst 10%" in output


@pytest.mark.rest
def test_levels_are_drawn(place, tmp_path):
    run("plot", place, "--kind", "levels", "--out", tmp_path / "levels.png")
    assert (tmp_path / "levels.png").stat().st_size > 1000


@pytest.mark.rest
def test_what_cannot_be_is_told_in_a_line(place, tmp_path, capsys):
    error = lambda text: line(capsys, "eval", place, "--levels", text)
    assert "must be random:N:SEED, with N from 1" in error("random:0:1")
    assert "must be random:N:SEED" in error("random:10")
    assert str(tmp_path / "none") in error(tmp_path / "none")
    assert "no file of levels of a curriculum" in error(place / "policy.safetensors")
    assert "cannot be combined with against" in line(
        capsys, "eval", place, "--levels", "held-out", "--against", "random"
    )
    plain = tmp_path / "plain"
    run("train", "ppo", "--env", "CartPole-v1", *SMALL, "--total-steps", "64", "--out", plain)
    capsys.readouterr()
    assert "CartPole-v1 has no levels to choose from" in line(capsys, "eval", plain, "--levels", "random:3:1")
    assert "No such file" in line(capsys, "plot", plain, "--kind", "levels", "--out", tmp_path / "x.png")
    assert "held-out" not in error("random:3:x")


@pytest.mark.rest
def test_levels_that_cannot_be_are_not_drawn(place, tmp_path, capsys):
    """A file may hold what no training makes."""
    shutil.copytree(place, tmp_path / "run")
    like = load_file(place / levels.FILE)
    like["level.direction"] = np.full_like(like["level.direction"], 77)
    card_files.save(
        card_files.LEVELS, tmp_path / "run" / levels.FILE, like, {"env": "Maze-v0", "agents": 2, "capacity": 8}
    )
    error = line(capsys, "plot", tmp_path / "run", "--kind", "levels", "--out", tmp_path / "x.png")
    assert "levels that Maze-v0 cannot have" in error


@pytest.mark.parametrize("what", ["env", "agents", "size", "shape", "byte"])
def test_files_are_not_believed(place, env, tmp_path, what):
    """What was not written so is refused before it is played."""
    like = load_file(place / levels.FILE)
    card = {"env": "Maze-v0", "agents": 2, "capacity": 8}
    path = tmp_path / "levels.safetensors"
    if what == "env":
        card["env"] = "Obstacles-v0"
    elif what == "agents":
        card["agents"] = 2**29
    elif what == "size":
        like["size"] = np.array([9, -1], np.int32)
    elif what == "shape":
        like["level.walls"] = np.zeros((2, 8, 7, 7), bool)
    card_files.save(card_files.LEVELS, path, like, card)
    if what == "byte":
        raw = bytearray(path.read_bytes())
        raw[-5] ^= 1
        path.write_bytes(raw)
    with pytest.raises(ConfigError, match=str(path)) as error:
        levels.load(path, env, "Maze-v0")
    assert len(str(error.value).splitlines()) == 1


def test_keys_among_levels_are_kept(tmp_path):
    """As those of libraries are."""
    plain = envs.make("CartPole-v1", randomise="length:0.25:1.0")
    begin = lambda key: plain.begin(plain.levels(key, ()))
    env = plain._replace(levels=jax.random.split, begin=begin)
    keys = jax.random.split(jax.random.key(1), 6)
    made = buffers.empty(keys)._replace(size=jnp.int32(4), score=jnp.arange(6.0), best=jnp.ones(6))
    stack = jax.tree.map(lambda x: x[None], made)
    levels.save(tmp_path, stack, {"env": "own"})
    result = levels.load(tmp_path / levels.FILE, env, "own")
    np.testing.assert_array_equal(jax.random.key_data(result.levels), jax.random.key_data(keys[:4]))
    assert result.score.tolist() == [0, 1, 2, 3]
