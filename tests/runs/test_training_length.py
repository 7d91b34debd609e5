"""A training's length is an argument of its program: another one compiles nothing."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from purerl import ConfigError, envs, loops, ppo, trees
from purerl import config as cfg
from purerl.algos import ALGORITHMS
from purerl.cli import main
from purerl.runs.describing.description import Setup, describe
from purerl.runs.describing.options import TrainOptions

LAYERS = {"hidden_sizes": (4,)}
REPLAY = {**LAYERS, "num_envs": 2, "num_steps": 4, "capacity": 64, "warmup_steps": 32, "batch_size": 4}
SEQUENCES = {**REPLAY, "num_steps": 8, "period": 4, "burn_in": 2, "unroll": 6, "memory_size": 4}
TEAM = {**REPLAY, "num_steps": 8, "period": 4, "unroll": 6, "capacity": 128}
LENGTHS = 4096, 3_000_000_000


def programs(algo, env, config, total_steps):
    """The text of the programs that begin a training and go on with it."""
    config = dataclasses.replace(config, total_steps=total_steps)
    setup = Setup.of(describe(algo, TrainOptions(env=env), config))
    member = trees.take(setup.members, 0)
    init = jax.jit(lambda m: setup.make_trainer(**m.given).init(m.keys)).trace(member)
    chunk = jax.jit(lambda given, *rest: loops.chunk(setup.make_trainer(**given), 4)(*rest))
    return init.lower().as_text(), chunk.lower(member.given, init.out_info, np.int32(0)).as_text()


@pytest.mark.rest
@pytest.mark.parametrize(
    ("algo", "env", "fields"),
    [
        ("ppo", "CartPole-v1", LAYERS),
        pytest.param("pqn", "CartPole-v1", LAYERS, marks=pytest.mark.weekly),
        ("dqn", "CartPole-v1", {**REPLAY, "prioritised": True}),
        ("sac", "Pendulum-v1", REPLAY),
        pytest.param("qmix", "TwoStep-v0", TEAM, marks=pytest.mark.weekly),
        pytest.param("r2d2", "CartPole-v1", SEQUENCES, marks=pytest.mark.weekly),
        pytest.param("ngu", "CartPole-v1", SEQUENCES, marks=pytest.mark.weekly),
    ],
)
def test_two_lengths_are_one_program(algo, env, fields):
    config = ALGORITHMS[algo].Config(**fields)
    assert programs(algo, env, config, LENGTHS[0]) == programs(algo, env, config, LENGTHS[1])


def test_a_length_is_static_as_an_int_and_a_leaf_otherwise():
    config = ppo.Config()
    given = cfg.with_lengths(config)
    assert given.total_steps == config.total_steps and isinstance(given.total_steps, np.float32)
    assert len(jax.tree.leaves(given)) == len(jax.tree.leaves(config)) + 1
    longer = cfg.with_lengths(dataclasses.replace(config, total_steps=10 * config.total_steps))
    assert jax.tree.structure(given) == jax.tree.structure(longer) != jax.tree.structure(config)
    assert jax.tree.unflatten(jax.tree.structure(given), jax.tree.leaves(longer)) == longer
    assert jax.jit(lambda config: config.num_iterations)(given) == config.num_iterations
    assert cfg.problems(given) == [] and "total_steps" not in cfg.traced_fields(config)
    batch, axes = cfg.sweep(given, gamma=[0.9, 0.99])
    assert jax.vmap(lambda c: c.gamma * c.total_steps, in_axes=(axes,))(batch).shape == (2,)


def test_a_config_may_keep_its_length_static():
    @cfg.config
    class Config(ppo.Config):
        """One whose program asks for the number."""

        total_steps: cfg.Count = 4096
        """Frames."""

    assert cfg.with_lengths(Config()) == Config() and type(cfg.with_lengths(Config()).total_steps) is int


def test_a_whole_training_needs_the_number():
    with pytest.raises(ConfigError, match="total_steps = .*must be a Python int"):
        ppo.make_train(cfg.with_lengths(ppo.Config()), envs.make("CartPole-v1"))


@pytest.mark.rest
def test_another_length_compiles_nothing(tmp_path):
    """Both programs of the second command, and what else it computes, come out of the cache."""
    missed: list[str] = []
    listen = lambda event, **_: missed.append(event) if event == "/jax/compilation_cache/cache_misses" else None
    jax.monitoring.register_event_listener(listen)
    small = [
        "--num-envs",
        "2",
        "--num-steps",
        "8",
        "--num-minibatches",
        "1",
        "--hidden-sizes",
        "5",
        "--eval-episodes",
        "2",
    ]
    counts = []
    for length in (64, 128):
        missed.clear()
        args = ["train", "ppo", "--env", "CartPole-v1", *small, "--out", str(tmp_path / str(length))]
        with pytest.raises(SystemExit) as stop:
            main([*args, "--total-steps", str(length), "--compile", "quick"])
        assert stop.value.code == 0
        counts.append(len(missed))
    missed = []
    assert counts[0] > 1 and counts[1] == 0
    assert json.loads((tmp_path / "128/summary.json").read_text())["env_steps"] == 128
    assert json.loads((tmp_path / "128/config.json").read_text())["options"]["compile"] == "quick"
