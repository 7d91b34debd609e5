"""Many trainings in one program: seeds, hyper-parameters, environment parameters and meta-parameters, on every device.

A population is a list of members ``[P]``. They are dealt out to the devices (`shard_map`); each device computes its
share in groups, one after another, and the members of a group side by side (`vmap`). On CPU a group is one member by
default, so that a member gets the same bits wherever it lies: alone, in a later batch, or on another device.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from purerl import planning
from purerl.types import Key, PyTree

AXIS = "P"
CPU_LANES = 1
"""Members that a CPU core computes side by side. With 4 it is about an eighth faster, but XLA on CPU chooses the order
of some sums by the size of the whole array, so that members then differ from lone ones in the last bits."""


class Members(NamedTuple):
    """What tells one member from another; every leaf leads with ``[P]``. ``given`` are keyword arguments."""

    given: dict[str, PyTree]
    keys: Key

    @property
    def size(self) -> int:
        return self.keys.shape[0]


class Layout(NamedTuple):
    """How members lie on ``devices``: on each, ``groups`` one after another, of ``lanes`` members side by side."""

    devices: tuple[jax.Device, ...]
    groups: int
    lanes: int

    @property
    def size(self) -> int:
        """Members that the program computes, those that only fill it up included."""
        return len(self.devices) * self.groups * self.lanes

    @property
    def sharding(self) -> NamedSharding | None:
        """Of arrays that lead with ``[P]``; None on a single device."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS)) if len(self.devices) > 1 else None

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.array(self.devices), (AXIS,))


def layout(size: int, devices: Sequence[jax.Device] | None = None, lanes: int | None = None) -> Layout:
    """Deals ``size`` members out to ``devices`` (default: all), evenly, in groups of at most ``lanes``.

    ``lanes`` defaults to `CPU_LANES` on CPU and to all members of a device elsewhere.
    """
    devices = tuple(devices or jax.devices())[:size]
    share = math.ceil(size / len(devices))
    most = lanes or (CPU_LANES if devices[0].platform == "cpu" else share)
    groups = math.ceil(share / most)
    return Layout(devices, groups, math.ceil(share / groups))


def members(
    configs: Any, keys: Key, *, env_params: dict[str, Any] | None = None, meta_params: PyTree | None = None
) -> Members:
    """Pairs configs, keys and parameters up, member by member.

    Floats of ``configs`` and ``env_params`` are scalars that all members share, or vectors ``[P]``; ``keys`` are one
    key that all share (common random numbers), or ``[P]``; every leaf of ``meta_params`` leads with ``[P]``. Raises
    `ValueError` if their lengths differ.
    """
    given = {"config": configs} | ({} if env_params is None else {"env_params": env_params})
    floats = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), given)
    lengths = {x.shape[0] for x in jax.tree.leaves((floats, keys)) if x.ndim}
    if meta_params is not None:
        lengths |= {x.shape[0] for x in jax.tree.leaves(meta_params)}
    if len(lengths) > 1:
        raise ValueError(f"members: lengths differ: {sorted(lengths)}")
    size = lengths.pop() if lengths else 1
    shared = jax.tree.map(lambda x: x if x.ndim else jnp.broadcast_to(x, (size,)), (floats, keys))
    return Members(shared[0] | ({} if meta_params is None else {"meta_params": meta_params}), shared[1])


def take(tree: PyTree, index: Any) -> PyTree:
    """Elements ``index`` of the leading axis of every leaf."""
    return jax.tree.map(lambda x: x[index], tree)


def fill(tree: PyTree, size: int) -> PyTree:
    """Repeats the last member until there are ``size`` of them."""
    return take(tree, np.minimum(np.arange(size), jax.tree.leaves(tree)[0].shape[0] - 1))


def place(members: PyTree, layout: Layout) -> PyTree:
    """Members filled up to the layout's size and laid on its devices."""
    return jax.device_put(fill(members, layout.size), layout.sharding or layout.devices[0])


def spread(function: Callable[..., tuple[PyTree, PyTree]], layout: Layout) -> Callable[..., tuple[PyTree, PyTree]]:
    """``function(given, state, *shared) -> (state, out)`` of one member, for ``layout.size`` of them.

    Every leaf of ``given``, ``state`` and ``out`` gains a leading axis ``[P]``; ``shared`` is the same for all. States
    are replaced in place, group by group. The function that comes back takes ``groups``, by name: how many groups of
    each device to compute (an int32 that may be traced; default: all). Those left out keep their state, and get zeros.
    """

    function = jax.jit(function, inline=True)  # traced once for its shapes and for the loop

    def on_device(groups, given, state, *shared):
        if layout.groups == 1:
            return _side_by_side(function)(given, state, *shared)
        given, state = jax.tree.map(lambda x: x.reshape(layout.groups, layout.lanes, *x.shape[1:]), (given, state))
        shapes = jax.eval_shape(_side_by_side(function), take(given, 0), take(state, 0), *shared)[1]
        out = jax.tree.map(lambda x: jnp.zeros((layout.groups, *x.shape), x.dtype), shapes)

        def group(i, carry):
            results = _side_by_side(function)(take(given, i), take(carry[0], i), *shared)
            return jax.tree.map(lambda all, one: all.at[i].set(one), carry, results)

        results = jax.lax.fori_loop(0, groups, group, (state, out))
        return jax.tree.map(lambda x: x.reshape(layout.groups * layout.lanes, *x.shape[2:]), results)

    def everywhere(given, state, *shared, groups=layout.groups):
        if len(layout.devices) == 1:
            return on_device(groups, given, state, *shared)
        one, all = PartitionSpec(AXIS), PartitionSpec()
        specs = (all, one, one, *(all for _ in shared))
        sharded = jax.shard_map(on_device, mesh=layout.mesh, in_specs=specs, out_specs=one, check_vma=False)
        return sharded(groups, given, state, *shared)

    return everywhere


def _side_by_side(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`jax.vmap` over the first two arguments, but a single member is computed as if it were alone.

    XLA on CPU simplifies an axis of one element away half-way through and then rounds as neither a lone run nor a lane
    of several does.
    """

    def call(given, state, *shared):
        if jax.tree.leaves((given, state))[0].shape[0] == 1:
            one = function(take(given, 0), take(state, 0), *shared)
            return jax.tree.map(lambda x: x[None], one)
        return jax.vmap(lambda g, s: function(g, s, *shared))(given, state)

    return call


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
    flops = planning.flops(lambda m: make_train(**m.given)(m.keys), take(everyone, 0))
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
        shapes = planning.shapes(fill(everyone, deal.size), deal.sharding)
        return jax.jit(lambda given: train_all(given, ())[1]).lower(shapes), deal

    planning.check_state(train, take(everyone, 0), devices=devices)
    return planning.compile_to_fit(lower, everyone.size, batch_size, "cut the size of a member")
