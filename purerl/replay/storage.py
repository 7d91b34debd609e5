"""The memory layout of stored rows: booleans bit-packed, stacks as single frames, next observations where needed."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from purerl.replay import cuts
from purerl.replay.cuts import Cuts
from purerl.types import Array, PyTree, Recorded, Transition


@functools.partial(jax.tree_util.register_dataclass, data_fields=["bits"], meta_fields=["shape"])
@dataclasses.dataclass(frozen=True)
class Packed:
    """A bit-packed boolean array ``[..., *shape]``, eight elements per byte: ``bits`` is uint8 ``[..., bytes]``."""

    bits: Array
    shape: tuple[int, ...]


def pack(x: Array, ndim: int) -> Array | Packed:
    """Packs a boolean array into bits over all axes after the first ``ndim``; returns any other array as it is.

    An array of numpy stays one.
    """
    if x.dtype != bool or x.ndim == ndim:
        return x
    flat = x.reshape(*x.shape[:ndim], -1)
    packbits = np.packbits if isinstance(x, np.ndarray) else jnp.packbits
    return Packed(packbits(flat, axis=-1, bitorder="little"), x.shape[ndim:])


def unpack(x: Array | Packed) -> Array:
    """Reverts `pack`."""
    if not isinstance(x, Packed):
        return x
    flat = jnp.unpackbits(x.bits, axis=-1, count=int(np.prod(x.shape)), bitorder="little")
    return flat.reshape(*x.bits.shape[:-1], *x.shape).astype(bool)


def empty(item: Transition, num_rows: int, num_envs: int, frames: PyTree, stride: int, next_obs: int) -> Transition:
    """Makes zeros for ``num_rows`` rows ``[rows, B]`` of transitions like ``item``.

    Args:
        item: One step of one environment, as arrays or `jax.ShapeDtypeStruct`.
        num_rows: The number of rows.
        num_envs: The number of environments ``B``.
        frames: The number of frames stacked in each leaf of an observation; a number, or a tree of them.
        stride: Extras are stored for every ``stride``-th row (but see `Recorded`).
        next_obs: Which next observations are stored: 0 none, 1 all, otherwise that of one truncated step in this many
            rows (`Cuts`).
    """

    def blank() -> Transition:
        block = jax.tree.map(lambda x: jnp.zeros((stride, num_envs, *x.shape), x.dtype), item)
        return kept(block, frames, stride)

    def rows(x: jax.ShapeDtypeStruct) -> Array:
        return jnp.zeros((x.shape[0] * (num_rows // stride), *x.shape[1:]), x.dtype)

    shapes = jax.eval_shape(blank)
    items = jax.tree.map(rows, shapes)
    if next_obs == 1 or not stores_next(items):
        return items
    one_row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes.next_obs)
    return items._replace(next_obs=cuts.empty(one_row, num_rows, next_obs) if next_obs else ())


def kept(trajectory: Transition, frames: PyTree, stride: int) -> Transition:
    """Reduces a trajectory ``[T, B]`` to what may be stored of it.

    This is the newest frame of every observation, bit-packed, and the extras of every ``stride``-th step; of `Recorded`
    extras, ``every`` is kept for all steps. Arguments are as for `empty`.
    """

    def newest(obs: PyTree) -> PyTree:
        return jax.tree.map(lambda x, n: pack(x[..., -1] if n > 1 else x, 2), obs, each(frames, obs))

    def begins(extras: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[::stride], extras)

    extras = trajectory.extras
    return trajectory._replace(
        over=(),
        obs=newest(trajectory.obs),
        next_obs=newest(trajectory.next_obs),
        extras=extras._replace(first=begins(extras.first)) if isinstance(extras, Recorded) else begins(extras),
    )


def write(items: Transition, position: Array, rows: Transition) -> Transition:
    """Writes ``rows`` ``[T, B]``, as `kept` returns them, into ``items`` from row ``position`` on."""
    num_rows = items.reward.shape[0]

    def put(stored: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(stored, new, position // (num_rows // stored.shape[0]), axis=0)

    written = jax.tree.map(put, items._replace(next_obs=()), rows._replace(next_obs=()))
    if isinstance(items.next_obs, Cuts):
        return written._replace(next_obs=cuts.add(items.next_obs, position, rows.truncated, rows.next_obs))
    return written._replace(next_obs=jax.tree.map(put, items.next_obs, rows.next_obs) if stores_next(items) else ())


def present(items: Transition, row: Array, env: Array) -> Array | tuple[()]:
    """Reads `Transition.present` of the steps in ``row`` of ``env``, indices ``[...]``; ``()``: it is True."""
    return () if isinstance(items.present, tuple) else items.present[row, env]


def stores_next(items: Transition) -> bool:
    """Returns whether any next observations are stored."""
    return bool(jax.tree.leaves(items.next_obs))


def holds_next(items: Transition, row: Array, env: Array) -> Array:
    """Returns whether the next observation of the truncated step in ``row`` of ``env`` is stored.

    Bool. Indices are ``[...]``.
    """
    if isinstance(items.next_obs, Cuts):
        return cuts.holds(items.next_obs, row, env)
    return jnp.full(row.shape, stores_next(items))


def each(frames: PyTree, obs: PyTree) -> PyTree:
    """Returns the number of stacked frames of every leaf of ``obs``.

    This is ``frames`` itself, or one number for all leaves.
    """
    return jax.tree.map(lambda x: frames, obs) if isinstance(frames, int) else frames


def observe(items: Transition, row: Array, env: Array, frames: PyTree) -> PyTree:
    """Reads the observations in ``row`` of ``env``, indices of one shape ``[...]``, as the environment returned them.

    A stack of frames is rebuilt from the rows before it; the first frame of an episode stands in for earlier ones.
    """

    def leaf(n: int, stored: Array | Packed) -> Array:
        if n == 1:
            return read(stored, row, env)
        rows = _rows_before(items, row, env, n)
        return jnp.moveaxis(read(stored, rows, jnp.broadcast_to(env[..., None], rows.shape)), row.ndim, -1)

    return _with_frames(leaf, frames, items.obs)


def observe_next(items: Transition, row: Array, env: Array, frames: PyTree) -> PyTree:
    """Reads the next observations of the steps in ``row``, as `observe` does, if they are stored (`holds_next`)."""
    stacks, stored_next, place = observe(items, row, env, frames), items.next_obs, row
    if isinstance(stored_next, Cuts):
        stored_next, place = stored_next.obs, row // stored_next.every

    def leaf(n: int, stored: Array | Packed, stack: Array) -> Array:
        newest = read(stored, place, env)
        return newest if n == 1 else jnp.concatenate([stack[..., 1:], newest[..., None]], axis=-1)

    return _with_frames(leaf, frames, stored_next, stacks)


def _with_frames(leaf: Callable[..., Array], frames: PyTree, stored: PyTree, *more: PyTree) -> PyTree:
    """Applies ``leaf(n, stored, ...)`` to every leaf of an observation, where ``n`` is its number of stacked frames."""
    is_leaf = lambda x: isinstance(x, Packed)
    if isinstance(frames, int):
        return jax.tree.map(functools.partial(leaf, frames), stored, *more, is_leaf=is_leaf)
    return jax.tree.map(leaf, frames, stored, *more)


def _rows_before(items: Transition, row: Array, env: Array, num_frames: int) -> Array:
    """Computes the rows ``[..., num_frames]`` whose frames make up the stack of ``row`` ``[...]``, oldest first."""
    num_rows, last = items.reward.shape[0], items.terminated | items.truncated
    rows = [row]
    for _ in range(num_frames - 1):
        before = (rows[0] - 1) % num_rows
        rows.insert(0, jnp.where(last[before, env], rows[0], before))
    return jnp.stack(rows, axis=-1)


def read(stored: PyTree, row: Array, env: Array) -> PyTree:
    """Gathers the elements at ``row`` and ``env`` ``[...]`` from arrays ``[rows, B, ...]``, and unpacks them."""
    elements = jax.tree.map(lambda x: x[row, env], stored)
    return jax.tree.map(unpack, elements, is_leaf=lambda x: isinstance(x, Packed))
