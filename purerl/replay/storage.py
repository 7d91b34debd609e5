"""How rows lie in memory: booleans as bits, and stacks of frames as single frames."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array, Item, PyTree, Transition


@functools.partial(jax.tree_util.register_dataclass, data_fields=["bits"], meta_fields=["shape"])
@dataclasses.dataclass(frozen=True)
class Packed:
    """Booleans of ``shape`` behind some leading axes, eight in a byte: ``bits`` is uint8 ``[..., bytes]``."""

    bits: Array
    shape: tuple[int, ...]


def pack(x: Array, ndim: int) -> Array | Packed:
    """Packs a boolean array of which the first ``ndim`` axes are leading ones; anything else stays as it is."""
    if x.dtype != bool or x.ndim == ndim:
        return x
    flat = x.reshape(*x.shape[:ndim], -1)
    return Packed(jnp.packbits(flat, axis=-1, bitorder="little"), x.shape[ndim:])


def unpack(x: Array | Packed) -> Array:
    """What was packed."""
    if not isinstance(x, Packed):
        return x
    flat = jnp.unpackbits(x.bits, axis=-1, count=int(np.prod(x.shape)), bitorder="little")
    return flat.reshape(*x.bits.shape[:-1], *x.shape).astype(bool)


def empty(item: Transition, num_rows: int, num_envs: int, num_frames: int, stride: int, next_obs: bool) -> Item:
    """Zeros for ``num_rows`` rows of transitions like ``item``: one step, arrays or `jax.ShapeDtypeStruct`."""

    def blank() -> Item:
        block = jax.tree.map(lambda x: jnp.zeros((stride, num_envs, *x.shape), x.dtype), item)
        return kept(block, num_frames, stride, next_obs)

    rows = lambda x: jnp.zeros((x.shape[0] * (num_rows // stride), *x.shape[1:]), x.dtype)  # noqa: E731
    return jax.tree.map(rows, jax.eval_shape(blank))


def kept(trajectory: Transition, num_frames: int, stride: int, next_obs: bool) -> Item:
    """What is stored of a trajectory ``[T, B]``: single frames, packed, those of ``next_obs`` only if asked for; and
    the extras of every ``stride``-th step."""

    def newest(obs: PyTree) -> PyTree:
        return jax.tree.map(lambda x: pack(x[..., -1] if num_frames > 1 else x, 2), obs)

    return Item(
        obs=newest(trajectory.obs),
        action=trajectory.action,
        reward=trajectory.reward,
        terminated=trajectory.terminated,
        truncated=trajectory.truncated,
        next_obs=newest(trajectory.next_obs) if next_obs else (),
        extras=jax.tree.map(lambda x: x[::stride], trajectory.extras),
    )


def observe(items: Item, row: Array, env: Array, num_frames: int) -> PyTree:
    """The observations in ``row`` of ``env``, indices of one shape ``[...]``, as the environment gave them.

    A stack of frames is rebuilt from the rows before; the first frame of an episode stands in for those before it.
    """
    if num_frames == 1:
        return read(items.obs, row, env)
    num_rows, last = items.reward.shape[0], items.terminated | items.truncated
    rows = [row]
    for _ in range(num_frames - 1):
        before = (rows[0] - 1) % num_rows
        rows.insert(0, jnp.where(last[before, env], rows[0], before))
    stacked = jnp.stack(rows, axis=-1)
    frames = read(items.obs, stacked, jnp.broadcast_to(env[..., None], stacked.shape))
    return jax.tree.map(lambda x: jnp.moveaxis(x, row.ndim, -1), frames)


def observe_next(items: Item, row: Array, env: Array, num_frames: int) -> PyTree:
    """The next observations of the steps in ``row`` of ``env``, of a ring that stores them; otherwise as `observe`."""
    newest = read(items.next_obs, row, env)
    if num_frames == 1:
        return newest
    shift = lambda stack, frame: jnp.concatenate([stack[..., 1:], frame[..., None]], axis=-1)  # noqa: E731
    return jax.tree.map(shift, observe(items, row, env, num_frames), newest)


def read(stored: PyTree, row: Array, env: Array) -> PyTree:
    """The elements of ``row`` and ``env`` ``[...]`` of arrays ``[rows, B, ...]``, unpacked."""
    found = jax.tree.map(lambda x: x[row, env], stored)
    return jax.tree.map(unpack, found, is_leaf=lambda x: isinstance(x, Packed))
