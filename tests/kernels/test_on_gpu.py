"""Kernels as they are compiled for a GPU that need not be here: what they move, hold and spill."""

import jax
import jax.numpy as jnp
import pytest
from budgets import counted, program

from purerl import kernels, trees
from purerl.errors import ConfigError
from purerl.hardware import absent, gpus, report
from purerl.population import planning

BUDGETS = {
    "ppo": ({"kernels": 145, "bytes_per_frame": 11_900}, {"rollout", "returns", "update", "survive"}, 128),
    "dqn": ({"kernels": 110, "bytes_per_frame": 60_000}, {"rollout", "update", "survive"}, 2304),
}
"""An iteration of 64 agents on CartPole, its kernels of our own, and the bytes that a thread of these may spill, which
stay in the caches. The plain programs move 2.9 times as much and more."""


@pytest.fixture(scope="module")
def target():
    """Something that compiles for GPUs, or a reason to skip."""
    try:
        return jax.sharding.SingleDeviceSharding(absent.device("h100"))
    except ConfigError as error:
        pytest.skip(str(error))


def test_bytes_are_those_that_are_read_and_written(target):
    """Of a table only the rows that are taken count; the state is written over, so that nothing is copied."""

    def step(state, index, table):
        rows = table[index]
        return (state[0] + jnp.sum(rows), state[1]), jnp.mean(rows)

    def run(state, table, indices):
        one = kernels.fuse(lambda state, index: step(state, index, table), "rows")
        with kernels.using(kernels.ON):
            return jax.lax.scan(one, state, indices)

    members, state, table = 3, jnp.zeros((3, 64, 32)), jnp.zeros((3, 256, 4))
    args = (state, state), table, jnp.zeros((3, 5, 64), jnp.int32)
    lowered = jax.jit(jax.vmap(run), donate_argnums=0).lower(*trees.shapes(args, target))
    loop = planning.census(lowered).loops[1]
    kernel = members * (2 * 64 * 32 + 64 * 4 + 64 + 1) * 4  # state twice, rows, their indices, their mean
    others = (
        members * 64 * 4 * 2 + 4 + members * 4 * 3 + 8
    )  # a row of indices is cut out, a mean put in, a step counted
    assert loop.runs == 5 and kernel <= loop.traffic_bytes <= kernel + others + 64 and loop.kernels <= 4


@pytest.mark.parametrize("algo", BUDGETS)
def test_an_iteration_stays_within_its_budget(target, as_shipped, algo):
    budget, names, spilled = BUDGETS[algo]
    lowered, frames = program(algo, "", "", "gpu", True)
    reported = report.compiled(lowered)
    now = counted(reported.program, frames)
    assert all(now[name] <= budget[name] for name in budget), now
    limits = gpus.CAPABILITIES[9, 0]
    made = {kernel.name: kernel for kernel in reported.kernels}
    assert set(made) == names
    for kernel in made.values():
        assert kernel.registers * kernel.threads <= 65536 and kernel.shared_bytes <= limits.block_shared_bytes
        assert max(kernel.spill_stores, kernel.spill_loads) <= spilled, kernel


def test_what_the_assembler_says():
    text = """ptxas info    : Compiling entry function 'update' for 'sm_90a'
    104 bytes stack frame, 108 bytes spill stores, 112 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 104 bytes cumulative stack size"""
    assert report.read("update", 256, 1024, text) == report.Kernel("update", 256, 255, 1024, 108, 112)
