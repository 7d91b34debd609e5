"""Configs: pytrees of their floats, ranges, and sweeps."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import ConfigError, c51, check, dqn, impala, ppo, sweep
from purerl import config as cfg
from purerl.config import sweep_problems
from purerl.learners.parts import checks
from purerl.runs.describing.options import EvolveOptions

FLOATS = cfg.traced_fields(ppo.Config)
COUNTS = ["total_steps", "num_envs", "num_steps", "num_epochs", "num_minibatches"]


def test_floats_are_leaves_and_the_rest_is_static():
    leaves, structure = jax.tree.flatten(ppo.Config(num_envs=8))
    assert len(leaves) == len(FLOATS) == 17
    assert structure == jax.tree.structure(ppo.Config(num_envs=8, gamma=0.5))
    assert structure != jax.tree.structure(ppo.Config(num_envs=16))
    assert jax.jit(lambda config: config.gamma * config.num_envs)(ppo.Config(num_envs=8, gamma=0.5)) == 4


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ppo.Config().gamma = 0.5


@pytest.mark.parametrize("name", FLOATS)
def test_every_float_has_a_range(name):
    check(ppo.Config())
    for bad in (math.nan, math.inf, -1.0, "a", True):
        with pytest.raises(ConfigError, match=f"^{name} = "):
            check(dataclasses.replace(ppo.Config(), **{name: bad}))


def test_edges_of_ranges():
    for name, good, bad in [
        ("gamma", (0.0, 1.0), (-0.001, 1.001)),
        ("gae_lambda", (0.0, 1.0), (1.5,)),
        ("learning_rate", (1e-12, 7), (0.0,)),
        ("entropy_coef", (0.0, 3.0), (-1e-9,)),
    ]:
        for value in good:
            check(dataclasses.replace(ppo.Config(), **{name: value}))
        for value in bad:
            with pytest.raises(ConfigError, match="must lie in"):
                check(dataclasses.replace(ppo.Config(), **{name: value}))


@pytest.mark.parametrize("name", FLOATS)
def test_numbers_that_float32_lacks(name):
    """1e40 would train as inf, 1e-50 as 0, as would 1e-40 where a program rounds numbers that small."""
    limits = "in float32, whose sizes reach from 1.18e-38 to 3.4e+38"
    for value, rounded in ((1e40, "inf"), (1e-50, "0.0"), (1e-40, "0.0")):
        [problem] = cfg.problems(dataclasses.replace(ppo.Config(), **{name: value}))
        in_range = f"{name} = {value!r}: is {rounded} {limits}"
        assert problem == in_range or (value > 1 and problem.startswith(f"{name} = {value!r}: must lie in [0, 1]"))


def test_ends_of_ranges_in_float32():
    [problem] = cfg.problems(EvolveOptions(momentum=1 - 1e-12))
    assert problem == f"momentum = {1 - 1e-12}: is 1.0 in float32, must lie in [0, 1)"
    assert cfg.problems(EvolveOptions(momentum=1 - 1e-6)) == []
    assert sweep_problems(ppo.Config(), {"learning_rate": [1e-3, 1e40]})[0].startswith("learning_rate = 1e+40: is inf")
    config = c51.Config(v_min=10 - 1e-9)
    assert c51.problems(config, None) == [f"v_min = {10 - 1e-9}: must be below v_max = 10.0"]


@pytest.mark.parametrize(
    ("algo", "change", "lines"),
    [
        (ppo, {"sequence_length": 8, "memory_size": 8}, ["memory_size = 8: has no effect without a memory", "sequ"]),
        (ppo, {"memory": "gru", "memory_size": 8, "sequence_length": 8}, []),
        (ppo, {"memory": "gru", "memory_window": 8}, ["memory_window = 8: has no effect without memory = 'gtrxl'"]),
        (impala, {"max_lag": 2}, ["max_lag = 2: has no effect without a lag"]),
        (
            ppo,
            {"adapt_learning_rate": 0.01, "num_epochs": 1, "num_minibatches": 1},
            ["adapt_learning_rate = 0.01: has no effect without more than one gradient step"],
        ),
        (ppo, {"adapt_learning_rate": 0.01, "num_epochs": 1, "num_minibatches": 2}, []),
        (ppo, {"adapt_learning_rate": 0.01, "num_epochs": 1, "num_minibatches": 1, "lag": 1.0, "max_lag": 1}, []),
        (impala, {"max_lag": 2, "lag": 1.0}, []),
        (dqn, {"priority_exponent": 0.5}, ["priority_exponent = 0.5: has no effect without prioritised"]),
        (dqn, {"priority_exponent": 0.5, "prioritised": True}, []),
        (
            dqn,
            {"double": False, "td_error": "munchausen"},
            ["double = False: has no effect without td_error = 'q_lear"],
        ),
        (dqn, {"epsilon_start": 0.05, "exploration_fraction": 0.5}, ["exploration_fraction = 0.5: has no effect with"]),
    ],
)
def test_fields_without_effect(algo, change, lines):
    result = cfg.unused([algo.Config(**change)], algo.Config())
    assert len(result) == len(lines) and all(a.startswith(b) for a, b in zip(result, lines, strict=True)), result


def test_fields_without_effect_in_a_sweep_or_a_preset():
    """What a preset says is not asked for; of a sweep, one configuration with an effect is enough."""
    five = ppo.preset("openai-five")
    assert cfg.unused([dataclasses.replace(five, memory="none")], five) == []
    config = impala.Config(max_lag=8)
    assert cfg.unused(cfg.rows(config, {"lag": [0.0, 8.0]}), impala.Config()) == []
    [line] = cfg.unused(cfg.rows(dqn.Config(), {"importance_exponent": [0.4, 0.9]}), dqn.Config())
    assert line == "importance_exponent = 0.9: has no effect without prioritised"


def test_fields_without_effect_where_a_dataset_is_missing():
    changed = dqn.Config(demo_ratio=0.25)
    assert cfg.unused([changed], dqn.Config()) == ["demo_ratio = 0.25: has no effect without demos"]
    assert cfg.unused([changed], dqn.Config(), ("demos",)) == []


@pytest.mark.parametrize("name", COUNTS)
def test_every_count_has_a_range(name):
    for bad in (0, -1, 1.5, "3", True):
        with pytest.raises(ConfigError, match=f"^{name} = "):
            check(dataclasses.replace(ppo.Config(), **{name: bad}))


def test_other_fields():
    for name, bad in (("activation", "rleu"), ("hidden_sizes", (64, 0)), ("hidden_sizes", 64), ("normalize_obs", 1)):
        with pytest.raises(ConfigError, match=f"^{name} = "):
            check(dataclasses.replace(ppo.Config(), **{name: bad}))


def test_all_problems_at_once():
    config = ppo.Config(gamma=2.0, learning_rate=-1.0, num_minibatches=3)
    assert [line.split()[0] for line in ppo.problems(config, None)] == ["gamma", "learning_rate", "num_minibatches"]


def test_minibatch_problems_name_the_nearest():
    [problem] = checks.minibatch_problems(ppo.Config(num_envs=4, num_steps=16, num_minibatches=3))
    assert "must divide num_envs * num_steps = 64" in problem and "nearest valid: 2, 4" in problem
    [problem] = checks.iteration_problems(ppo.Config(total_steps=10**12, num_envs=2**30, num_minibatches=3))
    assert problem == f"num_envs * num_steps = {2**37}: must be below {2**31}"
    [problem] = checks.minibatch_problems(ppo.Config(total_steps=10**12, num_envs=2**23, num_minibatches=3))
    assert "nearest valid: 2, 4" in problem
    [problem] = checks.minibatch_problems(ppo.Config(num_minibatches=1000))
    assert problem.endswith("nearest valid: 512")
    assert len(ppo.problems(ppo.Config(num_envs="4"), None)) == 1
    [problem] = checks.iteration_problems(ppo.Config(total_steps=511))
    assert "at least one iteration" in problem and "512" in problem


def test_tracers_pass_and_huge_counts_are_exact():
    jax.jit(lambda config: check(config) or config.gamma)(ppo.Config())
    assert ppo.Config(total_steps=10**11).num_iterations == 10**11 // 512


def test_sweeps_are_checked_as_whole_configs():
    """A value may be in range and yet not fit the others."""
    config, values = c51.Config(), {"v_min": [5.0, 20.0, 20.0]}
    assert sweep_problems(config, values) == []
    problems = lambda config: c51.problems(config, None)
    assert sweep_problems(config, values, problems) == ["v_min = 20.0: must be below v_max = 10.0"]
    assert sweep_problems(config, {"num_envs": [1]}) == ["num_envs: cannot be swept"]
    assert sweep_problems(config, {"gamma": [2.0]})[0].startswith("gamma = 2.0: must lie in")


def test_wrong_types_are_told_and_nothing_else():
    for change in ({"v_min": "x"}, {"v_min": jnp.zeros(2)}, {"n_step": None}, {"hidden_sizes": None}):
        [problem] = c51.problems(dataclasses.replace(c51.Config(), **change), None)
        assert problem.startswith(next(iter(change)))


def test_sweep():
    batch, axes = sweep(ppo.Config(), learning_rate=jnp.logspace(-4, -2, 3), gamma=[0.9, 0.95, 0.99])
    product = jax.vmap(lambda config: config.learning_rate * config.gamma * config.num_envs, in_axes=(axes,))(batch)
    np.testing.assert_allclose(product, 4 * np.array([0.9e-4, 0.95e-3, 0.99e-2]), rtol=1e-5)
    with pytest.raises(ConfigError, match="num_envs"):
        sweep(ppo.Config(), num_envs=[1, 2])
    with pytest.raises(ConfigError, match="one length"):
        sweep(ppo.Config(), gamma=[0.9, 0.8], learning_rate=[1e-3])


def test_inherited_fields_are_given_other_defaults():
    @cfg.config
    class Parent:
        rate: cfg.Positive = 0.5
        """Step size."""
        size: int = 4
        """Number of units."""

    @cfg.config(rate=0.25, size=8)
    class Child(Parent):
        more: float = 1.0

    assert Child() == Child(rate=0.25, size=8, more=1.0) and Parent() == Parent(0.5, 4)
    assert [field.name for field in dataclasses.fields(Child)] == ["rate", "size", "more"]
    assert cfg.traced_fields(Child) == ["rate", "more"] and cfg.problems(Child(rate=-1.0)) != []
    for wrong in ({"absent": 1}, {"more": 1.0}):
        with pytest.raises(TypeError, match="is inherited"):
            cfg.config(**wrong)(type("Own", (Parent,), {"__annotations__": {"more": float}, "more": 2.0}))


def test_limits_are_static_numbers():
    """A number whose 0 leaves a part of the program out: whole or not, but nothing else."""
    assert "target_kl" not in FLOATS
    for good in (0, 0.0, 0.02, 1):
        check(ppo.Config(target_kl=good))
    for bad, line in (("a", "must be a number"), (None, "must be a number"), (True, "must be a number")):
        with pytest.raises(ConfigError, match=f"target_kl = {bad!r}: {line}"):
            check(ppo.Config(target_kl=bad))
    with pytest.raises(ConfigError, match=r"target_kl = -1: must lie in \[0, inf\)"):
        check(ppo.Config(target_kl=-1))


def test_a_setting_without_a_type_is_refused():
    with pytest.raises(TypeError, match=r"Config: penalty = 2.0 has no type, .* write penalty: float = 2.0$"):

        @cfg.config
        class Config(ppo.Config):
            """A field that would be none."""

            penalty = 2.0

    with pytest.raises(TypeError, match="Other: num_envs = 8 has no type"):

        @cfg.config
        class Other(ppo.Config):
            """An inherited field whose default would stay."""

            num_envs = 8
            limit: ClassVar = 3

            def size(self):
                return self.num_envs
