"""A user's own network, losses, estimate and optimiser, by their names on the command line."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from commands import own_module, run

from purerl import ppo
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.learned import own_parts
from purerl.learners.parts import gradients
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import loading

OWN = """
import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl.formulas import returns


class Both(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return nn.Dense(2)(obs), nn.Dense(1)(obs)[..., 0]


def sized(config, env):
    return Both() if config.hidden_sizes == (4,) and env.observation_space.shape == (4,) else None


def three(config, env):
    return nn.Dense(3)


def loss(value, old_value, target, config):
    return jnp.abs(value - target)


def step(config):
    return optax.sgd(config.learning_rate)


def estimate(config):
    return returns.by_gae(config.gae_lambda)


NUMBER = 3
"""
ALGORITHMS = """
import jax.numpy as jnp

from purerl import ppo
from purerl import config as cfg


class Bare(ppo.Config):
    penalty: float = 2.0


def other(log_ratio, advantage, config):
    return jnp.exp(log_ratio) * advantage


def make_learner(config, env, **parts):
    return ppo.own_learner(config, env, objective=other, **parts)


def only_network(config, env, *, network=None):
    return ppo.own_learner(config, env, network=network)


penalised = ppo._replace(name="own", own_learner=make_learner, presets={})
narrow = penalised._replace(own_learner=only_network)
bare = penalised._replace(own_config=Bare)
made = penalised._replace(own_config=ppo.own_config())
nothing = penalised._replace(own_learner=lambda config, env, **parts: None)
"""
SMALL = ["--total-steps", "64", "--num-envs", "2", "--num-steps", "8", "--num-minibatches", "1", "--hidden-sizes", "4"]
TRAIN = ["train", "ppo", "CartPole-v1", *SMALL, "--eval-episodes", "2"]
PARTS = {"network": "mine:sized", "value_loss": "mine:loss", "optimiser": "mine:step", "estimate": "./mine.py:estimate"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    with own_module(tmp_path, monkeypatch, "mine", OWN) as folder:
        yield folder


@pytest.mark.rest
def test_a_run_remembers_its_parts_and_where_they_are_trusted(folder, monkeypatch, capsys):
    options = [word for name, value in PARTS.items() for word in (f"--{name.replace('_', '-')}", value)]
    run(*TRAIN, *options, "--out", "run")
    assert json.loads((folder / "run/config.json").read_text())["parts"] == PARTS
    loaded = loading.load("run", trust=True)
    assert jax.tree.map(jnp.shape, loaded.policy.params)["params"]["Dense_0"] == {"bias": (1, 2), "kernel": (1, 4, 2)}
    run("eval", "run", "--episodes", "2")
    run("resume", "run", "--total-steps", "128")
    shutil.copytree("run", "copy")
    run("eval", "copy", expect=2)
    assert "is new here; --trust imports it" in capsys.readouterr().err
    run("eval", "copy", "--episodes", "2", "--trust")
    run("train", "ppo", "--config", "run/config.json", "--out", "again", expect=2)  # names code, and nobody says so
    assert not (folder / "again").exists()


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("network", "mine:three", "network: gives one array; must give the tuple (policy, value)"),
        ("network", "mine:Nothing", "network = 'mine:Nothing': module mine has no 'Nothing'"),
        ("network", "mine", "network = 'mine': no MODULE:NAME or ./FILE.py:NAME of your own"),
        (
            "value-loss",
            "mine:step",
            "value_loss: must be a function value_loss(value, old_value, target, config)",
        ),
        ("value-loss", "mine:NUMBER", "value_loss: must be a function"),
        ("optimiser", "mine:NUMBER", "optimiser = 'mine:NUMBER': is int; must be NAME(config) -> optax."),
        ("optimiser", "mine:Both", "optimiser"),
        (
            "optimiser",
            "adamx",
            "optimiser = 'adamx': No such file or directory, no name of `purerl list learned`, no opt",
        ),
        ("optimiser", "sgd", "optimiser = 'sgd': is the path sgd and also optax.sgd; rename one of them"),
        ("objective", "mine.py:loss", "objective: must be a function objective(log_ratio, advantage, config) -> [N]"),
    ],
)
def test_a_wrong_part_is_a_line_before_anything_is_written(folder, capsys, option, value, line):
    (folder / "sgd").mkdir()
    run(*TRAIN, f"--{option}", value, "--out", "run", expect=2)
    err = capsys.readouterr().err
    assert err.startswith(f"purerl: error: {line}") and err.count("\n") == 1 and not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bare", "algorithm = 'mine:bare': own_config = Bare: lacks @config of purerl.config above it"),
        ("made", "algorithm = 'mine:made': own_config is PPOConfig(...); must be a class, not called"),
        ("nothing", "own: own_learner: must return a purerl.types.Learner, but returns NoneType"),
    ],
)
def test_an_algorithm_of_ones_own_is_checked(tmp_path, monkeypatch, capsys, name, line):
    with own_module(tmp_path, monkeypatch, "mine", ALGORITHMS):
        run("train", f"mine:{name}", "CartPole-v1", *SMALL, "--out", "run", expect=2)
    assert capsys.readouterr().err == f"purerl: error: {line}\n"


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--objective", "mine:other", "got multiple values for keyword argument 'objective'"),
        ("--objective", "no_such:thing", "objective = 'no_such:thing': cannot import no_such"),
        ("--network", "mine:penalised", "network: is Algorithm; must be a networks.ActorCritic"),
        ("--value-loss", "mine:other", "value_loss: own has no such part; it has network"),
    ],
)
def test_an_algorithm_of_ones_own_ignores_no_part(tmp_path, monkeypatch, capsys, option, value, line):
    """Neither if it has PPO's sockets still, nor if it gives the part itself, nor if it takes none of the name."""
    with own_module(tmp_path, monkeypatch, "mine", ALGORITHMS):
        run(
            "train",
            "mine:narrow" if "no such part" in line else "mine:penalised",
            "CartPole-v1",
            *SMALL,
            option,
            value,
            "--out",
            "run",
            expect=2,
        )
    assert line in capsys.readouterr().err


def test_an_optimiser_of_optax_has_the_clip_and_the_schedule_of_the_algorithm():
    """By hand: the gradient is cut to its norm, and each step is of the step size of its update."""
    config = ppo.Config(learning_rate=0.1, max_grad_norm=1.0, total_steps=4 * 128 * 2, num_envs=4, num_steps=128)
    count, state = config.total_updates, None
    optimiser = gradients.of_optax(config, optax.sgd)
    params, grads = {"x": jnp.zeros(2)}, {"x": jnp.array([3.0, 4.0])}
    state = optimiser.init(params)
    for number in range(3):
        updates, state = optimiser.update(grads, state, params)
        np.testing.assert_allclose(updates["x"], -0.1 * (1 - number / count) * np.array([0.6, 0.8]), rtol=1e-5)


def test_optimisers_of_optax_that_need_more_than_gradients_are_none():
    names = {name for name in dir(optax) if gradients.is_name(name)}
    assert {"adam", "adamw", "sgd", "rmsprop", "lion"} <= names and not {
        "lbfgs",
        "polyak_sgd",
        "chain",
    } & names
    config, params = ppo.Config(), {"x": jnp.ones((2, 2))}
    for name in names:
        optimiser = gradients.of_optax(config, getattr(optax, name))
        jax.eval_shape(lambda optimiser=optimiser: optimiser.update(params, optimiser.init(params), params))


def test_parts_in_a_file_are_those_of_the_algorithm():
    problems = own_parts.problems_of_file(ppo, {"network": "a:b", "optimiser": "adam", "torso": "a:b"})
    assert problems == ["parts: 'torso': ppo has no such part"]
    assert own_parts.problems_of_file(ppo, {"network": "/etc/passwd"}) == ["parts: 'network': must be MODULE:NAME"]
    assert own_parts.problems_of_file(ppo, {"network": 3}) == ["parts: 'network': must be MODULE:NAME"]


@pytest.mark.parametrize("text", ["1M", "1000k", "1e6", "1_000_000", "0.001G"])
def test_whole_numbers_may_have_a_suffix(text):
    given = parsing.training("train", "ppo", TrainOptions, ["--env", "CartPole-v1", "--total-steps", text])
    assert given.config.total_steps == 1_000_000
    with pytest.raises(ConfigError, match="is not a whole number"):
        parsing.training("train", "ppo", TrainOptions, ["--env", "CartPole-v1", "--total-steps", "1.2345678M"])


def test_the_environment_may_follow_the_algorithm(capsys):
    assert parsing.algorithm("train", ["ppo", "CartPole-v1", "-x"])[1] == ["--env", "CartPole-v1", "-x"]
    with pytest.raises(ConfigError, match="^env = 'CartPole-v1': is given twice"):
        parsing.algorithm("train", ["ppo", "CartPole-v1", "--env=Pendulum-v1"])
    run("help", "eval")
    assert "usage: purerl eval [-h] [OPTIONS] RUN\n" in capsys.readouterr().out


@pytest.mark.rest
def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(*TRAIN, "--dry-run")
    run("sweep", *TRAIN[1:], "--learning-rate", "1e-3,1e-4", "--dry-run")
    assert capsys.readouterr().out.count("peak memory") == 2 and not list(tmp_path.iterdir())


def test_a_training_without_a_policy_is_unfinished(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    run("eval", tmp_path, expect=2)
    assert "is unfinished: no policy is saved before a training ends" in capsys.readouterr().err
