"""Presets: each can be run on what it is for, is where the command line begins, and is told of where it fits."""

import dataclasses

import pytest

from purerl import config as cfg
from purerl import envs
from purerl.algos import ALGORITHMS, presets
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.runs.describing.options import TrainOptions

PAIRS = [(name, algo) for algo in ALGORITHMS for name in ALGORITHMS[algo].presets]
MADE_FOR = {
    "image": "Breakout-MinAtar",
    "minatar": "Breakout-MinAtar",
    "memory": "CueCorridor-v0",
    "maze": "Maze-v0",
    "continuous": "Pendulum-v1",
    "mujoco": "Pendulum-v1",
    "simba": "Pendulum-v1",
    "droq": "Pendulum-v1",
    "hopper": "Pendulum-v1",
    "walker2d": "Pendulum-v1",
    "fast": "Pendulum-v1",
    "fast-gpu": "Pendulum-v1",
}
"""An environment of the kind that a preset is for; of the others any will do."""


@pytest.mark.parametrize(("name", "algo"), PAIRS)
def test_presets_are_sound(name, algo):
    """On what they are for, without a field that has no effect."""
    env, config = envs.make(MADE_FOR.get(name, "CartPole-v1")), ALGORITHMS[algo].preset(name)
    assert ALGORITHMS[algo].problems(config, env) == [] == cfg.unused([config], ALGORITHMS[algo].Config())
    if name in presets.KINDS:
        _, fits = presets.KINDS[name]
        assert fits(env)
        assert not fits(envs.make("CartPole-v1"))


def test_options_change_a_preset():
    args = ["--env", "CartPole-v1", "--preset", "openai-five", "--num-envs", "8", "--num-minibatches", "2"]
    given = parsing.training("train", "ppo", TrainOptions, args)
    assert (given.config.memory, given.config.num_epochs, given.config.gamma) == ("lstm", 1, 0.998)
    assert (given.config.num_envs, given.config.num_minibatches) == (8, 2)
    assert given.options.env == "CartPole-v1"


def test_unknown_presets():
    for name, algo, known in (
        ("minatr", "dpo", "image, memory, continuous, minatar, brax"),
        ("brax", "masac", "none"),
    ):
        with pytest.raises(ConfigError, match=f"^preset = '{name}': {algo} has no such preset; it has {known}$"):
            ALGORITHMS[algo].preset(name)


@pytest.mark.parametrize(
    ("algo", "env", "params", "expected"),
    [
        ("ppo", "CartPole-v1", {}, []),
        ("ppo", "CartPole-v1", {"hide_velocity": 1}, ["memory"]),
        ("ppo", "CartPole-v1", {"observation_mask": "1"}, ["memory"]),
        ("ppo", "MemoryChain-bsuite", {}, ["memory"]),
        ("ppo", "Breakout-MinAtar", {}, ["image"]),
        ("dqn", "Breakout-MinAtar", {}, ["image"]),
        ("dqn", "CueCorridor-v0", {}, []),
        ("ppo", "Pendulum-v1", {}, ["continuous"]),
        ("sac", "Pendulum-v1", {}, []),
    ],
)
def test_fitting(algo, env, params, expected):
    algorithm, env = ALGORITHMS[algo], envs.make(env, **params)
    assert list(presets.fitting(algorithm, algorithm.Config(), env)) == expected
    longer = dataclasses.replace(algorithm.Config(), total_steps=10_000_000)
    assert list(presets.fitting(algorithm, longer, env)) == expected


def test_who_has_chosen_is_told_of_no_preset():
    breakout = envs.make("Breakout-MinAtar")
    for config in (ALGORITHMS["dqn"].preset("image"), ALGORITHMS["dqn"].Config(hidden_sizes=(64,))):
        assert presets.fitting(ALGORITHMS["dqn"], config, breakout) == {}
