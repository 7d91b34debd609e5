"""Placement of members on devices: every device computes groups sequentially, and the members of a group by vmap.

The devices are a mesh ``population x data``. Each device has members of its own, unless an agent is split
(`purerl.population.splitting`): then it lies over several devices, each of which has some of its shards.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from purerl import backend, processes
from purerl.trees import fill, take
from purerl.types import PyTree

AXIS, DATA = "P", "data"
"""The names of the mesh axes: over members, and over the shards of one."""
CPU_LANES = 1
"""The number of members that a CPU core computes at once, under vmap.

4 are about an eighth faster, but XLA on CPU chooses the order of some sums by the size of the whole array, so that
members would differ in the last bits from single trainings.
"""


class Layout(NamedTuple):
    """A placement: each of ``devices`` computes ``groups`` one after another, each of ``lanes`` members under vmap.

    A member lies over ``per_agent`` devices.
    """

    devices: tuple[jax.Device, ...]
    groups: int
    lanes: int
    per_agent: int = 1

    @property
    def size(self) -> int:
        """The number of members that the program computes, including padding."""
        return self.places * self.groups * self.lanes

    @property
    def places(self) -> int:
        """The number of members that lie side by side."""
        return len(self.devices) // self.per_agent

    @property
    def sharding(self) -> Sharding:
        """The sharding of arrays with leading axis ``[P]``: split over the devices, or on the only one."""
        return self.shardings(False)

    @property
    def everywhere(self) -> Sharding:
        """The sharding of arrays that all members share: each device holds all of them."""
        only = len(self.devices) == 1
        return SingleDeviceSharding(self.devices[0]) if only else NamedSharding(self.mesh, PartitionSpec())

    def shardings(self, differs: PyTree) -> PyTree:
        """Returns the shardings of arrays ``[P, ...]``, leaf by leaf.

        Leaves that ``differs`` (bool) between the shards of an agent are ``[P, S, ...]``, and split over its devices,
        too.
        """
        if len(self.devices) == 1:
            return jax.tree.map(lambda _: SingleDeviceSharding(self.devices[0]), differs)
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs(differs))

    def specs(self, differs: PyTree) -> PyTree:
        """Returns `shardings` as axes of the mesh."""
        return jax.tree.map(lambda own: PartitionSpec(AXIS, DATA) if own else PartitionSpec(AXIS), differs)

    @property
    def axes(self) -> dict[str, int]:
        """The sizes of the mesh's axes: places for members, and devices of each."""
        return {"population": self.places, "data": self.per_agent}

    @property
    def mesh(self) -> Mesh:
        """The devices as a mesh of the axes `AXIS` and `DATA`."""
        return Mesh(np.array(self.devices).reshape(-1, self.per_agent), (AXIS, DATA))


def layout(
    size: int, devices: Sequence[jax.Device] | None = None, lanes: int | None = None, per_agent: int = 1
) -> Layout:
    """Distributes ``size`` members evenly over devices.

    Args:
        size: The number of members.
        devices: The devices; None: all. Devices that are left over have no members.
        lanes: The most members of a group; None: `CPU_LANES` on CPU, and all members of a device elsewhere.
        per_agent: The number of devices, side by side, that a member lies over.
    """
    there = tuple(devices or jax.devices())
    places = len(there) // per_agent
    if len({device.process_index for device in there}) == 1:
        places = min(places, size)  # several processes all run the same program, padded
    share = math.ceil(size / places)
    most = lanes or (CPU_LANES if there[0].platform == "cpu" else share)
    groups = math.ceil(share / most)
    return Layout(there[: places * per_agent], groups, math.ceil(share / groups), per_agent)


def place(members: PyTree, layout: Layout, sharding: Sharding | None = None) -> PyTree:
    """Pads ``members`` to the layout's size and puts them on its devices.

    Args:
        members: A tree whose leaves have the leading axis ``[P]``.
        layout: The layout.
        sharding: The sharding of the result; None: each member lies on the devices of its agent.
    """
    return processes.put(fill(members, layout.size), sharding or layout.sharding)


def spread(
    function: Callable[..., tuple[PyTree, PyTree]], layout: Layout, differs: tuple[PyTree, PyTree] = (False, False)
) -> Callable[..., tuple[PyTree, PyTree]]:
    """Maps ``function(given, state, *shared) -> (state, out)`` of one member over ``layout.size`` members.

    In the returned function every leaf of ``given``, ``state`` and ``out`` has a leading axis ``[P]``; ``shared`` is
    the same for all members. States are updated in place, group by group. It takes a keyword ``groups``: how many
    groups of each device to compute (an int32 that may be traced; default: all). Members of the other groups keep their
    state, and their ``out`` is zero.

    Args:
        function: The function of one member.
        layout: The layout of the members.
        differs: Which leaves of ``state`` and of ``out`` differ between the shards of an agent, as in
            `Layout.shardings`.
    """
    function = jax.jit(function, inline=True)  # traced once, for shapes and for the loop

    def on_device(groups: Any, given: PyTree, state: PyTree, *shared: PyTree) -> PyTree:
        if layout.groups == 1:
            return _side_by_side(function)(given, state, *shared)
        given, state = jax.tree.map(lambda x: x.reshape(layout.groups, layout.lanes, *x.shape[1:]), (given, state))
        shapes = jax.eval_shape(_side_by_side(function), take(given, 0), take(state, 0), *shared)[1]
        out = jax.tree.map(lambda x: jnp.zeros((layout.groups, *x.shape), x.dtype), shapes)

        def group(i: Any, carry: PyTree) -> PyTree:
            results = _side_by_side(function)(take(given, i), take(carry[0], i), *shared)
            return jax.tree.map(lambda all, one: all.at[i].set(one), carry, results)

        results = jax.lax.fori_loop(0, groups, group, (state, out))
        return jax.tree.map(lambda x: x.reshape(layout.groups * layout.lanes, *x.shape[2:]), results)

    def everywhere(given: PyTree, state: PyTree, *shared: PyTree, groups: Any = layout.groups) -> PyTree:
        if len(layout.devices) == 1:
            return on_device(groups, given, state, *shared)
        members, (of_state, of_out), replicated = PartitionSpec(AXIS), layout.specs(differs), PartitionSpec()
        given_specs = (replicated, members, of_state, *(replicated for _ in shared))
        operands = (groups, given, state, *shared)
        sharded = jax.shard_map(
            lambda *args: on_device(*jax.tree.map(_without_stand_in, args, operands)),
            mesh=layout.mesh,
            in_specs=given_specs,
            out_specs=(of_state, of_out),
            check_vma=False,
        )
        return sharded(*jax.tree.map(_with_stand_in, operands))

    return everywhere


def _with_stand_in(x: Any) -> Any:
    """Gives an empty array axes of 1 in place of 0: jaxlib 0.11.2 crashes on empty operands of `jax.shard_map`."""
    return x if np.size(x) else jnp.zeros([n or 1 for n in x.shape], x.dtype)


def _without_stand_in(x: Any, original: Any) -> Any:
    """Makes a device's part ``x`` of `_with_stand_in(original)` empty again."""
    return x if np.size(original) else x[tuple(slice(None if n else 0) for n in original.shape)]


def _side_by_side(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Applies `jax.vmap` over the first two arguments, but on CPU computes a single member without it.

    XLA on CPU removes an axis of length 1 midway through its optimisations; the result then differs in rounding both
    from a run without vmap and from a lane of a larger vmap.
    """

    def call(given: PyTree, state: PyTree, *shared: PyTree) -> PyTree:
        if backend.is_cpu() and jax.tree.leaves((given, state))[0].shape[0] == 1:
            one = function(take(given, 0), take(state, 0), *shared)
            return jax.tree.map(lambda x: x[None], one)
        return jax.vmap(lambda g, s: function(g, s, *shared))(given, state)

    return call
