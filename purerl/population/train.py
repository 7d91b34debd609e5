"""Many trainings in one program: seeds, hyper-parameters, environment parameters and meta-parameters, on every device.

A population is a list of members ``[P]``. They are dealt out to the devices (`shard_map`); each device computes its
share in groups, one after another, and the members of a group side by side (`vmap`). On CPU a group is one member by
default, so that a member gets the same bits wherever it lies: alone, in a later batch, or on another device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.population import arithmetic, planning
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
    """Trains ``P`` members, whatever they differ in, and returns what ``train(key)`` returns with ``[P]`` leading.

    ``make_train(config=...)``, called with ``env_params=...`` and ``meta_params=...`` too where these are given, makes
    ``train(key)``; `members` says what may vary. ``batch_size`` members are on the devices at once: "auto" takes as
    many as their free memory holds, and later batches wait with results kept in the host's memory. ``lanes`` is that
    of `layout`. Raises `planning.DoesNotFit` if not even one member a device fits. On CPU call
    `purerl.use_cpu_cores` first. ::

        train = lambda config, env_params: ppo.make_train(config, envs.make("CartPole-v1", **env_params))
        configs = dataclasses.replace(ppo.Config(), learning_rate=jnp.logspace(-4, -2, 256))
        train_population(train, configs, jax.random.key(0), env_params={"gravity": 9.8})
    """
    everyone = members(configs, keys, env_params=env_params, meta_params=meta_params)
    program, deal, size, _ = _compile(make_train, everyone, batch_size, devices, lanes)
    host = jax.devices("cpu")[0]
    results = []
    for start in range(0, everyone.size, size):
        batch = take(everyone, slice(start, start + size))
        result = program(place(batch, deal))
        result = take(result, slice(0, batch.size)) if batch.size < deal.size else result
        results.append(jax.device_put(result, host) if size < everyone.size else result)
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
    """What `train_population` would cost with the same arguments. Compiles its program and runs nothing.

    A frame's arithmetic is that of a whole training over ``configs.total_steps``. Raises `planning.DoesNotFit`.
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
    """The program of a batch of members ``[batch_size]``, as large as it fits."""
    train = jax.jit(lambda member: make_train(**member.given)(member.keys), inline=True)

    def lower(size: int) -> tuple[jax.stages.Lowered, Layout]:
        deal = layout(size, devices, lanes)
        train_all = spread(lambda member, _: ((), train(member)), deal)
        shapes = trees.shapes(fill(everyone, deal.size), deal.sharding)
        return jax.jit(lambda given: train_all(given, ())[1]).lower(shapes), deal

    planning.check_state(train, take(everyone, 0), devices=devices)
    return planning.compile_to_fit(lower, everyone.size, batch_size, "cut the size of a member")
