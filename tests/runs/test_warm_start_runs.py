"""Runs that begin with the policies of others, from the command line to a run that goes on."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_resume import REPLAY, break_down, outcome, run

from purerl import envs, load, ppo
from purerl.algos import read_config

SMALL = ["--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "8", "--eval-episodes", "2", "--total-steps", "256"]
PPO = ["train", "ppo", *SMALL, "--hidden-sizes", "8", "--normalize-obs"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run of two agents."""
    directory = tmp_path_factory.mktemp("source") / "run"
    run(*PPO, "--num-seeds", 2, "--out", directory)
    return directory


@pytest.fixture(scope="module")
def warm(source, tmp_path_factory):
    """A run of three agents that begin with the second one of these."""
    directory = tmp_path_factory.mktemp("warm") / "run"
    run(*PPO, "--num-seeds", 3, "--seed", 5, "--warm-start", f"{source}:1", "--out", directory)
    return directory


@pytest.mark.rest
def test_it_is_the_training_that_python_has(source, warm):
    """Agent by agent, of the same source; and the description tells of it."""
    policy = jax.tree.map(lambda x: x[1], load(source).policy)
    described = json.loads((warm / "config.json").read_text())
    digest = json.loads((source / "policy.json").read_text())["sha256"]
    assert described["warm_start"] == {"run": str(source), "agent": 1, "sha256": digest}
    config = read_config("ppo", described["config"])
    train = ppo.warm_start(policy).make_train(config, envs.make("CartPole-v1"))
    state = jax.jit(jax.vmap(train))(jax.vmap(jax.random.key)(jnp.arange(5, 8, dtype=jnp.uint32))).state
    made = ppo.make_learner(config, envs.make("CartPole-v1"))
    expected = jax.vmap(made.policy)(state.learner)
    result = load(warm).policy
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4), result, expected)
    counts = np.asarray(result.obs_moments.count)
    assert (counts == 2 * 256).all()  # the moments go on


@pytest.mark.rest
def test_a_run_that_goes_on_does_not_read_the_other(source, warm, tmp_path):
    """It may be gone: what the agents began with is in the run's own directory; before the first checkpoint, too."""
    moved = shutil.copytree(source, tmp_path / "source")
    command = [*PPO, "--num-seeds", 3, "--seed", 5, "--warm-start", f"{moved}:1"]
    for name, after in (("late", 2), ("early", 0)):
        break_down(*command, "--out", tmp_path / name, after=after)
        if name == "late":
            shutil.rmtree(moved)
        run("resume", tmp_path / name)
        kept, files = outcome(tmp_path / name)
        assert (kept, files) == outcome(warm)
        if name == "late":
            shutil.copytree(source, moved)


@pytest.mark.rest("command1-{}:2-has agents 0 to 1")
@pytest.mark.rest("command0-{}-has 2 agents, this run 3; name one of them")
@pytest.mark.parametrize(
    ("command", "start", "line"),
    [
        ([*PPO, "--num-seeds", 3], "{}", "has 2 agents, this run 3; name one of them"),
        (PPO, "{}:2", "has agents 0 to 1"),
        (
            ["train", "ppo", *SMALL, "--hidden-sizes", "16", "--normalize-obs"],
            "{}:0",
            "kernel: is float32[8, 2] in it, and float32[16, 2]",
        ),
        (["train", "ppo", *SMALL, "--hidden-sizes", "8"], "{}:0", "obs_moments.count: is in it, and not in"),
        (
            ["train", "dqn", *SMALL, *REPLAY],
            "{}:0",
            "of ppo on CartPole-v1: params.streams.Dense_0.bias: is missing in it",
        ),
        (PPO, "nowhere", "policy.json"),
    ],
)
def test_what_cannot_begin_is_told_in_a_line(command, start, line, source, tmp_path, capsys):
    run(*command, "--out", tmp_path / "run", "--warm-start", start.format(source), expect=2)
    error = capsys.readouterr().err
    assert line in error and "compiling" not in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.rest
def test_it_cannot_change(warm, tmp_path, capsys):
    copy = shutil.copytree(warm, tmp_path / "run")
    run("resume", copy, "--warm-start", "elsewhere", expect=2)
    assert "it cannot be changed" in capsys.readouterr().err
    (copy / "warm_start/policy.safetensors").write_bytes(b"")
    run("resume", copy, "--total-steps", 512, expect=2)
    assert "warm_start/policy.safetensors" in capsys.readouterr().err


@pytest.mark.rest
def test_growing_needs_no_policies_that_were_begun_with(warm, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(warm, directory)
    shutil.rmtree(directory / "warm_start")
    run("grow", directory, "--hidden-sizes", 16, "--out", tmp_path / "grown")
    grown, before = load(tmp_path / "grown"), load(directory)
    assert grown.setup.config.hidden_sizes == (16,) and grown.saved["warm_start"] == {}
    jax.tree.map(np.testing.assert_array_equal, grown.policy.obs_moments, before.policy.obs_moments)


@pytest.mark.rest
def test_agents_that_have_not_started_cannot_grow(source, tmp_path, capsys):
    """Grown, they would begin with new networks: the second batch of two has no checkpoint."""
    directory = tmp_path / "run"
    more = ("--num-seeds", 2, "--agents-at-once", 1, "--warm-start", f"{source}:1", "--out", directory)
    run(*PPO, *more)
    shutil.rmtree(directory / "checkpoints" / "1")
    run("grow", directory, "--hidden-sizes", 16, expect=2)
    assert "has agents that have not started, and would start without its warm start" in capsys.readouterr().err
