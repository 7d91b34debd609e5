"""Networks, losses, estimates and optimisers that a user gives: mistakes in them are found by shapes alone.

Some are those of reports: a value with an axis of its own that is broadcast against targets (RLinf issue 1568), a loss
that is a mean already (EGG pull request 119), a step size that an optimiser takes for a function (optax issue 1286).
"""

import functools
import re

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import optax
import pytest

from purerl import a2c, c51, dqn, envs, impala, muzero, ppo, pqn, r2d2, sac
from purerl import config as cfg
from purerl.algos.impala import vtrace_weights
from purerl.errors import ConfigError
from purerl.formulas import returns
from purerl.learners.wrappers import Wrapper
from purerl.networks import critics, heads
from purerl.networks.world_models import WorldModel

CARTPOLE, PENDULUM = envs.make("CartPole-v1"), envs.make("Pendulum-v1")


class Both(nn.Module):
    """Outputs of two sizes; a ``bare`` value has no axis of its own."""

    policy: int = 2
    bare: bool = True

    @nn.compact
    def __call__(self, obs):
        value = nn.Dense(1)(obs)
        return nn.Dense(self.policy)(obs), value[..., 0] if self.bare else value


class Images(nn.Module):
    """Reads images, which CartPole does not show."""

    @nn.compact
    def __call__(self, obs):
        batch, height, width, channels = obs.shape
        return nn.Dense(2)(obs)


class NoReturn(nn.Module):
    """Forgets to return what it computes."""

    @nn.compact
    def __call__(self, obs):
        nn.Dense(2)(obs)


def world(after, actions, atoms):
    """A world model of zeros, whose states have the width 4 before an action."""
    zeros = lambda x, size: jnp.zeros((len(x), size))
    return WorldModel(
        lambda key, obs: (),
        lambda params, obs: zeros(obs, 4),
        lambda params, state, action: (zeros(state, after), zeros(state, atoms)),
        lambda params, state: (zeros(state, actions), zeros(state, atoms)),
    )


GIVES, MUST = "network: gives", "...; must give"
MISTAKES = {
    "logits": (ppo, {"network": Both(3)}, f"{GIVES} float32[3, 3] as policy{MUST} float32[3, 2]"),
    "value axis": (ppo, {"network": Both(bare=False)}, f"{GIVES} float32[3, 1] as value{MUST} float32[3]"),
    "no value": (ppo, {"network": nn.Dense(2)}, f"{GIVES} one array; must give the tuple (policy, value)"),
    "more values": (dqn, {"network": nn.Dense(5)}, f"{GIVES} float32[3, 5] as values{MUST} float32[3, 2]"),
    "one value": (dqn, {"network": nn.Dense(1)}, f"{GIVES} float32[3, 1] as values"),
    "no atoms": (c51, {"network": nn.Dense(2)}, f"{GIVES} float32[3, 2] as values{MUST} float32[3, 2, 51]"),
    "values of pqn": (pqn, {"network": nn.Dense(3)}, f"{GIVES} float32[3, 3]"),
    "images": (dqn, {"network": Images()}, "network: cannot be applied to 3 observations, float32[3, 4]: ValueError"),
    "class": (dqn, {"network": Both}, "network: is ...; must be"),
    "module of r2d2": (r2d2, {"network": nn.Dense(2)}, "network: is Dense; must be a recurrent.Recurrent"),
    "module of muzero": (muzero, {"network": nn.Dense(2)}, "network: is Dense; must be a world_models.WorldModel"),
    "next state": (
        muzero,
        {"network": world(5, 2, 101)},
        f"{GIVES} float32[3, 5] as next state; must",
    ),
    "actions of muzero": (
        muzero,
        {"network": world(4, 3, 101)},
        f"{GIVES} float32[3, 3] as policy{MUST} float32[3, 2]",
    ),
    "atoms of muzero": (
        muzero,
        {"network": world(4, 2, 51)},
        f"{GIVES} float32[3, 51] as outputs for the reward",
    ),
    "arguments": (ppo, {"value_loss": lambda value, target, config: value}, "value_loss: must be ...TypeError"),
    "mean": (ppo, {"value_loss": lambda v, old, t, config: jnp.mean(v - t)}, "value_loss: must ... returns float32[]"),
    "broadcast": (ppo, {"value_loss": lambda v, old, t, config: v[:, None] - t[None]}, "value_loss: ...[7, 7]"),
    "order": (ppo, {"value_loss": lambda value, target, old_value, config: value}, "value_loss: must ...in the order"),
    "half": (dqn, {"td_loss": lambda error, config: error.astype(jnp.bfloat16)}, "td_loss: must ... bfloat16[7]"),
    "half network": (dqn, {"network": nn.Dense(2, dtype=jnp.bfloat16)}, f"{GIVES} bfloat16[3, 2] as values"),
    "no return": (ppo, {"network": NoReturn()}, f"{GIVES} NoneType; must give the tuple"),
    "not made": (ppo, {"estimate": lambda config: returns.by_gae(0.9)}, "estimate: must ... returns function"),
    "nothing": (ppo, {"objective": lambda ratio, advantage, config: None}, "objective: must ... returns NoneType"),
    "no function": (dqn, {"td_loss": 0.5}, "td_loss: must be a function ...; is float"),
    "mean of td": (dqn, {"td_loss": lambda error, config: jnp.mean(error)}, "td_loss: must ... returns float32[]"),
    "ints": (dqn, {"td_loss": lambda error, config: error.astype(int)}, "td_loss: must ... returns int32[7]"),
    "one result": (a2c, {"estimate": lambda c: c.reward}, "estimate: must ... returns float32[7]"),
    "axes": (a2c, {"estimate": lambda c: (c.reward[:, None], c.value)}, "estimate: must ... float32[7, 1], float32[7]"),
    "one weight": (impala, {"weights": lambda log_ratio, config: jnp.exp(log_ratio)}, "weights: must"),
    "misspelt": (ppo, {"objective": lambda r, a, config: config.clip_epsilom * a}, "objective: must ...clip_epsilom"),
    "maker": (ppo, {"optimiser": optax.adam}, "optimiser: is function; must be an optax.GradientTransformation"),
    "step size": (sac, {"optimiser": 1e-3}, "optimiser: is float; must be"),
}
"""The algorithm, the part, and how the line begins."""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_part_is_one_line_that_names_it(name):
    algorithm, parts, line = MISTAKES[name]
    pattern = re.escape(line).replace(re.escape("..."), ".*")
    with pytest.raises(ConfigError, match=f"^{pattern}") as refused:
        algorithm.make_train(algorithm.Config(), PENDULUM if algorithm is sac else CARTPOLE, **parts)
    assert "\n" not in str(refused.value)


def test_critics_may_be_more_but_must_judge_the_actions():
    config = sac.Config(hidden_sizes=(4,))
    of = lambda size, number: sac.make_trainer(
        config,
        PENDULUM,
        network=critics.for_box(size, 2, number, nn.Dense(4), nn.Dense(4), heads.MLP((4,), jnp.tanh)),
    )
    assert of(1, 5).learner
    with pytest.raises(ConfigError, match="^network: is for actions of size 2; must be 1$"):
        of(2, 2)


def test_right_parts_are_taken():
    gae = returns.by_gae(0.5)
    kept = {
        ppo: {"network": Both(), "value_loss": lambda v, old, t, c: jnp.square(v - t), "estimate": lambda c: gae(c)},
        dqn: {"td_error": lambda q, target, a, r, g, chooser, following: r + g * jnp.max(following) - q[a]},
        impala: {"weights": functools.partial(vtrace_weights)},
    }
    for algorithm, parts in kept.items():
        assert algorithm.make_trainer(algorithm.Config(), CARTPOLE, **parts).learner


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((CARTPOLE, ppo.Config()), r"config, env: are swapped; give \(config, env\)"),
        ((ppo.Config(), "CartPole-v1"), r"env: is the name 'CartPole-v1'; must be an Env, as purerl.envs.make\("),
        ((ppo.Config(), gymnasium.Env()), "env: is Env; must be an Env; purerl.envs.make makes one"),
        ((ppo.Config(), envs.make), "env: is function; must be an Env$"),
        ((dqn.Config(), CARTPOLE), "config: is DQNConfig; must be a Config of ppo"),
        ((ppo.Config, CARTPOLE), r"config: is the class PPOConfig; must be a Config of ppo, as PPOConfig\(\) makes"),
        (({"num_envs": 4}, CARTPOLE), "config: is dict; must be a Config of ppo"),
    ],
)
def test_other_arguments_than_a_config_and_an_environment_are_one_line(arguments, line):
    for make in (ppo.make_learner, ppo.make_trainer, ppo.make_train):
        with pytest.raises(ConfigError, match=f"^{line}") as refused:
            make(*arguments)
        assert "\n" not in str(refused.value)


def test_an_algorithm_of_ones_own_that_returns_no_learner_is_named():
    nothing = ppo._replace(name="mine", own_learner=lambda config, env, **parts: None)
    with pytest.raises(ConfigError, match="^mine: own_learner: must return a .*Learner, but returns NoneType$"):
        nothing.make_train(ppo.Config(), CARTPOLE)


def test_a_wrapper_that_returns_no_learner_is_named():
    @cfg.config
    class Settings:
        """Settings."""

        forgets: bool = False
        """Return nothing."""

    forgetful = ppo.wrapped(
        Wrapper("forgetful", Settings, "forgets", off=False, wrap=lambda config, env, learner: None)
    )
    with pytest.raises(ConfigError, match="^wrapper = 'forgetful': wrap must return a .*Learner; returns NoneType$"):
        forgetful.make_train(forgetful.Config(forgets=True), CARTPOLE)


def test_lists_and_whole_floats_are_taken():
    config = ppo.Config(hidden_sizes=[8, 8], total_steps=1e5, num_envs=4.0)
    assert config == ppo.Config(hidden_sizes=(8, 8), total_steps=100_000, num_envs=4)
    assert type(config.total_steps) is int and type(config.num_envs) is int
    assert jax.tree.structure(config) == jax.tree.structure(
        ppo.Config(hidden_sizes=(8, 8), total_steps=100_000, num_envs=4)
    )
    for wrong in ({"num_envs": 4.5}, {"learning_rate": [1e-3, 1e-4]}, {"normalize_obs": 1.0}):
        with pytest.raises(ConfigError, match=f"^{next(iter(wrong))} = "):
            ppo.make_train(ppo.Config(**wrong), CARTPOLE)
