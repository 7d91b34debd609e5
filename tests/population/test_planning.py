"""What a program will cost, against what it does cost."""

import collections
import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import shipped_environment

from purerl import alphazero, envs, muzero, plan, ppo, trees
from purerl.population import planning
from purerl.population.arithmetic import flops, product_flops
from purerl.types import Situation

MEASURE = r"""
import pathlib, re, psutil
from purerl import use_cpu_cores
use_cpu_cores()
from purerl import ppo
from purerl.runs.running import device_program
from purerl.runs.describing.options import TrainOptions
from purerl.runs.describing.description import Setup, describe
options = TrainOptions(env="CartPole-v1", num_seeds={agents})
description = describe("ppo", options, ppo.Config(total_steps={envs} * 128 * 2, num_envs={envs}, num_epochs=1))
setup = Setup.of(description)
compiled = device_program.compile_program(setup.make_trainer, setup.members)
state = compiled.begin(setup.members)
before = psutil.Process().memory_info().rss
for chunk in compiled.chunks(setup.members, state, 0, 2):
    pass
status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss would begin at the size of the parent process
peak = int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024
print(compiled.chunk.peak_bytes / (peak - before))
"""


@pytest.mark.weekly
def test_the_peak_is_predicted():
    """A program of about half a gigabyte, in a process of its own: within 10 % of what the process grew by."""
    code = MEASURE.format(agents=2, envs=2048)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=shipped_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert 0.9 < float(result.stdout) < 1.1


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda a, b: a @ b, [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
        (jax.vmap(lambda a, b: a @ b), [(7, 3, 4), (7, 4, 5)], 7 * 2 * 3 * 4 * 5),
        (lambda a, b: jnp.tanh(a) * b, [(6,), (6,)], 12),
        (lambda a: jax.lax.scan(lambda c, x: (c * x, ()), 1.0, a)[0], [(10,)], 10),
        (lambda a: jax.lax.scan(lambda c, _: (jnp.sin(c), ()), a, None, 5)[0], [(3,)], 15),
        (lambda a: jnp.reshape(a, (2, 3)).T, [(6,)], 0),
        (lambda a, k: jax.lax.conv(a, k, (1, 1), "VALID"), [(1, 2, 5, 5), (4, 2, 3, 3)], 2 * 4 * 3 * 3 * 2 * 3 * 3),
    ],
)
def test_flops_of_known_programs(function, shapes, expected):
    assert flops(function, *[jnp.ones(shape) for shape in shapes]) == expected


def test_flops_of_ppo_follow_from_its_matrices():
    """Products of a frame, by hand: one forward of the actor, both critics' inputs, and four epochs of gradients.

    A gradient costs two products for each forward one, less the first layer's input gradient.
    """
    config = ppo.Config()
    trainer = ppo.make_trainer(config, envs.make("CartPole-v1"))
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    result = flops(trainer.step, state) / trainer.env_steps
    first, second = 4 * 64, 64 * 64
    actor, critic = first + second + 64 * 2, first + second + 64
    gradients = 3 * (actor + critic) - 2 * first
    products = 2 * (actor + 2 * critic + config.num_epochs * gradients)
    assert products < result < 1.1 * products
    large = 2 * second * (3 + config.num_epochs * 3 * 2)  # not the rollout's, of 4 rows, nor those by 4 or 2 units
    assert product_flops(trainer.step, state) / trainer.env_steps == large


@pytest.mark.weekly
def test_plan_of_a_population():
    config = ppo.Config(total_steps=64 * 3, num_envs=4, num_steps=16, num_minibatches=2, hidden_sizes=(8,))
    train = lambda config: ppo.make_train(config, envs.make("CartPole-v1"))
    keys = jax.random.split(jax.random.key(0), 12)
    small, large = (plan(train, config, keys[:n], devices=jax.devices()[:1]) for n in (6, 12))
    assert (small.members, large.batch_size, large.devices) == (6, 12, 1)
    np.testing.assert_allclose(large.peak_bytes - small.peak_bytes, 6 * small.bytes_per_member, rtol=0.05)
    trainer = ppo.make_trainer(config, envs.make("CartPole-v1"))
    step = flops(trainer.step, jax.eval_shape(trainer.init, jax.random.key(0))) / trainer.env_steps
    assert step < small.flops_per_frame < 2 * step  # the initialisers weigh in such a short training


@pytest.mark.weekly
def test_the_trees_of_a_search_count():
    """Each simulation adds a node to each tree: a state, 6 numbers an action and 5 more, and a pass of the network. A
    program holds a second tree where XLA copies it."""
    games, env, shapes, costs = 64, envs.make("TicTacToe-v0"), jax.eval_shape, []
    of_game = shapes(lambda key: jax.vmap(env.reset)(jax.random.split(key, games)), jax.random.key(0))
    env_state, obs = of_game[0], shapes(lambda obs: trees.merge(obs, 2), of_game[1])
    for simulations in (8, 72):
        learner = alphazero.make_learner(alphazero.Config(simulations=simulations, hidden_sizes=(8,)), env)
        acting = shapes(learner.behaviour, shapes(learner.init, jax.random.key(0), obs))
        given = acting, Situation(obs, (), env_state), learner.noise(jax.random.key(0), (2 * games,))
        program = jax.jit(learner.explore).lower(*given).compile()
        costs.append((planning.program_bytes(program), flops(learner.explore, *given)))
    node = trees.nbytes(env_state) / games + 4 * (6 * 9 + 5)
    bytes_more, flops_more = (large - small for small, large in zip(*costs, strict=True))
    assert 1 < bytes_more / (64 * games * node) < 2.5
    assert flops_more > 64 * games * 2 * (27 * 8 + 8 * 10)


MODEL = {"hidden_sizes": (8,), "model_sizes": (32,), "state_size": 16, "num_atoms": 11, "simulations": 4}
CARTPOLE_ROW = 16 + 4 + 4 + 1 + 1 + 8 + 4 + 1
"""Bytes of a step of CartPole with what MuZero records: four numbers, the action, the reward, both ends, the policy of
two actions, the value, and whose turn it is."""


def test_the_replay_of_searches_counts():
    """By hand: each step, and of one in 32 rows of each environment the next observation and its row; two counters."""
    config = muzero.Config(**MODEL, num_envs=4, num_steps=8, capacity=4 * 4096)
    state = jax.eval_shape(muzero.make_trainer(config, envs.make("CartPole-v1")).init, jax.random.key(0))
    assert trees.nbytes(state.replay) == 4 * (4096 * CARTPOLE_ROW + 4096 // 32 * (16 + 1)) + 8


def test_words_for_sizes():
    assert [planning.gigabytes(x) for x in (12, 2**10, 1.5 * 2**30, 2**43)] == ["12 B", "1 KiB", "1.5 GiB", "8 TiB"]
    state = {"big": jax.ShapeDtypeStruct((2**20, 4), jnp.float32), "small": jnp.zeros(3)}
    assert "big [1048576, 4] 16 MiB" in planning.largest(state)


def test_a_state_that_cannot_fit_is_refused_before_compiling(monkeypatch):
    monkeypatch.setattr(planning.machine, "available_bytes", lambda devices: 2**20)  # a machine of one mebibyte
    config = dataclasses.replace(ppo.Config(), num_envs=2**23, total_steps=2**31)
    trainer = ppo.make_trainer(config, envs.make("CartPole-v1"))
    with pytest.raises(planning.DoesNotFit, match=r"actors\.obs \[8388608, 4\]"):
        planning.check_state(trainer.init, jax.random.key(0))


class Accelerator:
    """A device of 100 bytes, of which some are used."""

    def __init__(self, used):
        self.memory_stats = lambda: {"bytes_limit": 100, "bytes_in_use": used}


def test_data_that_lie_on_a_device_count_once(monkeypatch):
    """Their program has them as an argument, so they are no longer free and yet part of what it needs."""
    data = jnp.zeros(2**18)
    layout = type("Layout", (), {"devices": jax.devices()[:1], "groups": 1, "lanes": 1, "per_agent": 1, "places": 1})
    lowered = jax.jit(jnp.sum).lower(data)
    need = planning.program_bytes(lowered.compile())
    fit = lambda: planning.compile_to_fit(lambda size: (lowered, layout), 1, "auto", "", None, data)
    monkeypatch.setattr(planning.machine.container, "free_bytes", lambda: need - data.nbytes)
    plan = fit().plan(1, 0.0)
    assert (plan.available_bytes, plan.fits, plan.bytes_per_member) == (need, 1, need - data.nbytes)
    monkeypatch.setattr(planning.machine.container, "free_bytes", lambda: need - data.nbytes - 1)
    with pytest.raises(planning.DoesNotFit):
        fit()
    several = Accelerator(70), Accelerator(20)
    assert planning.machine._available_bytes(several, collections.Counter({several[0]: 60})) == 80


def test_plan_counts_devices_and_members():
    program = jax.jit(lambda x: jnp.sin(x) * 2).lower(jnp.ones((4, 1000))).compile()
    layout = type("Layout", (), {"devices": tuple(jax.devices()[:1]), "groups": 1, "lanes": 4, "per_agent": 1})
    plan = planning.Compiled(program, layout, 4, 1.0).plan(9, 3.0)
    assert plan.peak_bytes == plan.bytes_per_member * 4 and plan.peak_bytes >= 2 * 4 * 4000
    assert plan.members == 9 and plan.batch_size == 4 and plan.fits == plan.available_bytes // plan.bytes_per_member
    assert np.isclose(plan.flops_per_frame, 3.0)
