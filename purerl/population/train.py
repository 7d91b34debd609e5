"""Many trainings in one program: seeds, hyper-parameters, environment parameters and meta-parameters, on every device.

A population is a list of members ``[P]``, distributed over the devices (`shard_map`). Each device computes its share in
groups, one after another, and the members of a group in parallel (`vmap`). On CPU a group is a single member by
default, so that a member's results have the same bits in any population, batch and device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from purerl import processes, trees
from purerl.population import arithmetic, planning
from purerl.population import devices as machine
from purerl.population.layouts import Layout, layout, place, spread
from purerl.population.membership import Members, members
from purerl.trees import fill, take
from purerl.types import Key, PyTree


def train_population(
    make_train: Callable[..., Callable[[Key], PyTree]],
    configs: Any,
    keys: Key,
    *,
    env_params: dict[str, Any] | None = None,
    meta_params: PyTree | None = None,
    batch_size: int | str = "auto",
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> PyTree:
    """Trains ``P`` members and returns the results of their ``train(key)`` with a leading axis ``[P]``.

    On CPU call `purerl.use_cpu_cores` first. ::

        train = lambda config, env_params: ppo.make_train(config, envs.make("CartPole-v1", **env_params))
        configs = dataclasses.replace(ppo.Config(), learning_rate=jnp.logspace(-4, -2, 256))
        train_population(train, configs, jax.random.key(0), env_params={"gravity": 9.8})

    Args:
        make_train: ``make_train(config=...)`` makes ``train(key)``; it also gets ``env_params`` and ``meta_params`` if
            they are given.
        configs: A config whose floats are scalars, shared by all members, or ``[P]``.
        keys: One key that all members share, or ``[P]``.
        env_params: Parameters of the environment by name, scalars or ``[P]``.
        meta_params: A tree whose leaves have the leading axis ``[P]``.
        batch_size: The number of members on the devices at once; "auto": as many as fit into free memory. With several
            batches, on CPU, and of several processes, results are kept in host memory, on its first device.
        devices: The devices; None: all.
        lanes: The number of members that a device computes at once, as in `layout`.

    Raises:
        ConfigError: Results are kept in host memory, and JAX was told to do without the CPU.
        planning.DoesNotFit: The batch, or with "auto" not even one member per device, does not fit.
        ValueError: Lengths differ.
    """
    everyone = members(configs, keys, env_params=env_params, meta_params=meta_params)
    program, deal, size, *_ = _compile(make_train, everyone, batch_size, devices, lanes)
    results, several = [], processes.count() > 1
    at_host = several or size < everyone.size or deal.devices[0].platform == "cpu"
    host = machine.cpu("holds the results of batches") if at_host else None
    for start in range(0, everyone.size, size):
        batch = take(everyone, slice(start, start + size))
        # Slices of arrays on several cores are gathered in the background, which needs all cores of a CPU at once. XLA
        # aborts the process if one of them is busy for 40 seconds, for example with compiling.
        result = jax.block_until_ready(program(place(batch, deal)))
        if at_host:
            result = jax.device_put(processes.fetch(result) if several else result, host)
        results.append(take(result, slice(0, batch.size)) if batch.size < deal.size else result)
    return results[0] if len(results) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *results)


def plan(
    make_train: Callable[..., Callable[[Key], PyTree]],
    configs: Any,
    keys: Key,
    *,
    env_params: dict[str, Any] | None = None,
    meta_params: PyTree | None = None,
    batch_size: int | str = "auto",
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> planning.Plan:
    """Predicts the cost of `train_population`, whose program is compiled but not run.

    ``flops_per_frame`` is the arithmetic of a whole training divided by ``configs.total_steps``.

    Args:
        make_train: As in `train_population`, like all other arguments.
        configs: As there.
        keys: As there.
        env_params: As there.
        meta_params: As there.
        batch_size: As there.
        devices: As there.
        lanes: As there.

    Raises:
        planning.DoesNotFit: As there.
        ValueError: As there.
    """
    everyone = members(configs, keys, env_params=env_params, meta_params=meta_params)
    compiled = _compile(make_train, everyone, batch_size, devices, lanes)
    flops = arithmetic.flops(lambda m: make_train(**m.given)(m.keys), take(everyone, 0))
    return compiled.plan(everyone.size, flops / configs.total_steps)


def _compile(
    make_train: Callable[..., Callable[[Key], PyTree]],
    everyone: Members,
    batch_size: int | str,
    devices: Sequence[jax.Device] | None,
    lanes: int | None,
) -> planning.Compiled:
    """Compiles the program that trains a batch of members; the arguments are those of `train_population`."""
    train = jax.jit(lambda member: make_train(**member.given)(member.keys), inline=True)

    def lower(size: int) -> tuple[jax.stages.Lowered, Layout]:
        deal = layout(size, devices, lanes)
        train_all = spread(lambda member, _: ((), train(member)), deal)
        shapes = trees.shapes(fill(everyone, deal.size), deal.sharding)
        return jax.jit(lambda given: train_all(given, ())[1]).lower(shapes), deal

    planning.check_state(train, take(everyone, 0), devices=devices)
    return planning.compile_to_fit(lower, everyone.size, batch_size, "cut the size of a member")
