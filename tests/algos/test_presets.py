"""Presets: each can be run, and is where the command line begins."""

import pytest

from purerl import envs
from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.runs.describing.options import TrainOptions

PAIRS = [(name, algo) for algo in ALGORITHMS for name in ALGORITHMS[algo].presets]


@pytest.mark.parametrize(("name", "algo"), PAIRS)
def test_presets_are_sound(name, algo):
    env = envs.make("Pendulum-v1" if algo == "sac" else "CartPole-v1")
    assert ALGORITHMS[algo].problems(ALGORITHMS[algo].preset(name), env) == []


def test_options_change_a_preset():
    args = ["--env", "CartPole-v1", "--preset", "openai-five", "--num-envs", "8", "--num-minibatches", "2"]
    given = parsing.training("train", "ppo", TrainOptions, args)
    assert (given.config.memory, given.config.num_epochs, given.config.gamma) == ("lstm", 1, 0.998)
    assert (given.config.num_envs, given.config.num_minibatches) == (8, 2)
    assert given.options.env == "CartPole-v1"


def test_unknown_presets():
    for name, algo, known in (
        ("minatr", "ppo", "minatar, brax, ant, humanoid, halfcheetah, openai-five, mfos"),
        ("brax", "dqn", "none"),
    ):
        with pytest.raises(ConfigError, match=f"^preset = '{name}': {algo} has no such preset; it has {known}$"):
            ALGORITHMS[algo].preset(name)
