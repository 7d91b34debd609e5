"""Algorithms as values: what is checked before a training is made, networks of a user's own, and variants."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from purerl import dqn, envs, ippo, ppo, pqn, r2d2
from purerl.algos import ALGORITHMS
from purerl.algos.algorithm import part_names
from purerl.errors import ConfigError

CARTPOLE, PENDULUM, BREAKOUT = map(envs.make, ("CartPole-v1", "Pendulum-v1", "Breakout-MinAtar"))
SMALL = {"total_steps": 256, "num_envs": 4, "num_steps": 16}
RING = {**SMALL, "total_steps": 512, "warmup_steps": 128, "capacity": 256, "batch_size": 8}


def test_the_table_finds_every_file_and_its_value():
    assert list(ALGORITHMS) == sorted(ALGORITHMS)
    assert all(algorithm.name == name for name, algorithm in ALGORITHMS.items())
    assert "ppo" in ALGORITHMS and "ppoo" not in ALGORITHMS


@pytest.mark.parametrize(
    ("algorithm", "config", "env", "line"),
    [
        (dqn, dqn.Config(), PENDULUM, "env = 'Pendulum-v1': has Box actions"),
        (
            ppo,
            ppo.Config(num_minibatches=3),
            CARTPOLE,
            r"num_minibatches = 3: must divide num_envs \* num_steps = 512; nearest",
        ),
        (ppo, ppo.Config(learning_rate=-1), CARTPOLE, r"learning_rate = -1:"),
        (ppo, ppo.Config(layer_norm=True, torso="resnet"), CARTPOLE, "layer_norm = True:"),
        (ppo, ppo.Config(torso="simba", hidden_sizes=(64, 32)), CARTPOLE, r"hidden_sizes = \(64, 32\): must be one"),
        (dqn, dqn.Config(torso="resnet"), CARTPOLE, r"torso = 'resnet':"),
        (
            ppo,
            ppo.Config(convolutions=("8:2:2",)),
            CARTPOLE,
            r"convolutions = \('8:2:2',\): needs images of three axes",
        ),
        (
            ppo,
            ppo.Config(convolutions=("8:2",)),
            CARTPOLE,
            r"\('8:2',\): each must be CHANNELS:KERNEL:STRIDE or CHANNELS",
        ),
        (ppo, ppo.Config(torso="resnet", convolutions=("8:5:1",)), CARTPOLE, "each must be CHANNELS, for a resnet"),
        (
            dqn,
            dqn.Config(torso="nature"),
            BREAKOUT,
            r"torso = 'nature': Breakout-MinAtar has images \(10, 10, 4\), which",
        ),
    ],
)
def test_what_cannot_train_is_told_in_lines(algorithm, config, env, line):
    for make in (algorithm.make_train, algorithm.make_trainer):
        with pytest.raises(ConfigError, match=line):
            make(config, env)


def test_under_a_trace_static_fields_alone_are_looked_at():
    def train(rate, minibatches):
        config = ppo.Config(**SMALL, learning_rate=rate, num_minibatches=minibatches)
        return ppo.make_trainer(config, CARTPOLE).init(jax.random.key(0)).alive

    assert jax.eval_shape(lambda rate: train(rate, 4), -1.0).shape == ()
    with pytest.raises(ConfigError, match="^num_minibatches = 3:"):
        jax.eval_shape(lambda rate: train(rate, 3), -1.0)


def test_arrays_of_a_config_that_a_jit_closes_over():
    """They are no tracers, but comparing them inside the jit would be traced."""
    good = ppo.Config(**SMALL, learning_rate=jnp.float32(1e-3), lag=jnp.float32(0))
    bad = dataclasses.replace(good, gamma=jnp.float32(2))
    init = lambda config: jax.eval_shape(lambda key: ppo.make_trainer(config, CARTPOLE).init(key), jax.random.key(0))
    assert init(good).alive.shape == ()
    with pytest.raises(ConfigError, match=r"^gamma = .*2.*:"):
        init(bad)


class Linen(nn.Module):
    """A policy's logits and a value, or action values alone."""

    with_value: bool

    @nn.compact
    def __call__(self, obs):
        hidden = nn.tanh(nn.Dense(8)(obs))
        out = nn.Dense(2)(hidden)
        return (out, nn.Dense(1)(hidden)[..., 0]) if self.with_value else out


@pytest.mark.parametrize(("algorithm", "sizes"), [(ppo, SMALL), (dqn, RING), (pqn, SMALL)], ids=["ppo", "dqn", "pqn"])
def test_a_linen_module_is_a_network(algorithm, sizes):
    network = Linen(algorithm is ppo)
    state = jax.jit(algorithm.make_train(algorithm.Config(**sizes), CARTPOLE, network=network))(jax.random.key(0)).state
    assert state.alive and jax.tree.structure(state.learner.params) == jax.tree.structure(
        network.init(jax.random.key(0), jnp.ones((1, 4)))
    )


@pytest.mark.parametrize("algorithm", [ppo, dqn, pqn, r2d2], ids=lambda algorithm: algorithm.name)
def test_other_networks_are_refused_in_one_line(algorithm):
    for network in (nnx.Linear(4, 2, rngs=nnx.Rngs(0)), lambda obs: obs):
        with pytest.raises(ConfigError, match="^network: is .*; must be .*$") as refused:
            algorithm.make_train(algorithm.Config(), CARTPOLE, network=network)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("algorithm", "parts"),
    [
        (ppo, "estimate, objective, value_loss, network, optimiser, scaler, num_predictions"),
        (ippo, "network, optimiser, scaler, num_predictions, estimate, objective, value_loss"),
        (r2d2, "network, optimiser"),
        (ppo.warm_start(None), "estimate, objective, value_loss, network, optimiser, scaler, num_predictions"),
    ],
    ids=["ppo", "ippo", "r2d2", "warm-start"],
)
def test_a_wrong_part_is_told_with_the_right_ones(algorithm, parts):
    with pytest.raises(ConfigError) as error:
        algorithm.make_learner(algorithm.Config(), CARTPOLE, netwrok=None)
    assert str(error.value) == f"netwrok: {algorithm.name} has no such part; it has {parts}"


def test_parts_of_all_algorithms_have_names():
    assert all("network" in part_names(algorithm.own_learner) for algorithm in ALGORITHMS.values())
    assert part_names(lambda config, env, **parts: None) is None


def test_a_variant_is_a_changed_value():
    slow = ppo._replace(name="slow", presets={"crawl": {"learning_rate": 1e-5}})
    assert slow.preset("crawl") == dataclasses.replace(ppo.Config(), learning_rate=1e-5)
    with pytest.raises(ConfigError, match="^preset = 'brax': slow has no"):
        slow.preset("brax")


def test_settings_are_shared_by_the_families():
    """The same field in every family that has it: torso, memory, optimiser and replay are written once."""
    fields = {name: {f.name for f in dataclasses.fields(algo.Config)} for name, algo in ALGORITHMS.items()}
    alone = {name for name, names in fields.items() if "num_steps" not in names}
    assert alone == {"bc", "cql", "implicit-q", "rebrac", "td3-bc"}, "they learn from recorded play"
    for name, names in fields.items():
        assert {"total_steps", "torso", "hidden_sizes", "layer_norm"} <= names
        assert name in alone or {"num_envs", "num_steps", "gamma"} <= names
        assert {"learning_rate", "learning_rate_decay"} <= names
    by_element = {name for name, names in fields.items() if "max_grad_norm" not in names}
    assert by_element == {"disco"}, "its optimiser clips each number of an update"
    with_memory = {name for name, names in fields.items() if {"memory", "memory_size", "memory_window"} <= names}
    gradients = {"a2c", "appo", "dpo", "impala", "ippo", "mappo", "ppo", "reinforce", "v-mpo"}
    assert with_memory == gradients | {"agent57", "iql", "ngu", "qmix", "r2d2", "r2d3", "vdn"}


def test_a_residual_torso_for_action_values():
    env = envs.make("Breakout-MinAtar")
    config = dqn.Config(torso="resnet", hidden_sizes=(8,))
    learner = dqn.make_learner(config, env)
    _, obs = env.reset(jax.random.key(0))
    state = jax.eval_shape(learner.init, jax.random.key(0), obs[None])
    kernels = [x.shape for x in jax.tree.leaves(state.params) if x.ndim == 4]
    assert len(kernels) == 3 * 5 and np.all([shape[:2] == (3, 3) for shape in kernels])
