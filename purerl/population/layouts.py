"""How members lie on devices: in groups one after another, and side by side within a group."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from purerl.trees import fill, take
from purerl.types import PyTree

AXIS = "P"
CPU_LANES = 1
"""Members that a CPU core computes side by side. With 4 it is about an eighth faster, but XLA on CPU chooses the order
of some sums by the size of the whole array, so that members then differ from lone ones in the last bits."""


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
