"""Arrays inside a kernel, in pieces whose sizes are powers of 2: Triton computes with no others.

Every axis is cut into pieces. An axis of at most `UNROLLED` numbers becomes that many pieces without the axis, so that
slices and stacks of it cost nothing and small products are sums. A longer axis becomes pieces of 16 to `TILE` numbers.
The numbers of a piece beyond the end of an axis are undefined; a sum over them has to mask them (`inside`).
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import compat
from purerl.types import Array

UNROLLED = 8
"""The longest axis that is cut into single numbers."""
TILE = 128
"""The longest axis of a piece."""
SHORTEST = 16
"""The shortest axis of a piece: the least that Triton's products take."""
MOST_PIECES = 256
"""The most pieces of one array: with more, a kernel would take too long to compile."""


class Unsupported(Exception):
    """An error: a kernel cannot compute this, so that the plain program has to."""


class Axis(NamedTuple):
    """An axis of ``size`` numbers as ``parts`` pieces of ``width``; ``width`` 0: single numbers."""

    size: int
    parts: int
    width: int


class Block(NamedTuple):
    """An array of a ``shape`` and ``dtype``, in pieces.

    ``pieces`` has an axis for each of the shape's, of length `Axis.parts`.
    """

    shape: tuple[int, ...]
    dtype: Any
    pieces: np.ndarray


class View(NamedTuple):
    """An array in the device's memory that begins at number ``start`` of the flat ``ref``."""

    shape: tuple[int, ...]
    dtype: Any
    ref: Any
    start: Any = 0


def axis(size: int) -> Axis:
    """Returns how an axis of ``size`` numbers is cut."""
    if size <= UNROLLED:
        return Axis(size, size, 0)
    width = min(TILE, max(SHORTEST, 1 << (size - 1).bit_length()))
    return Axis(size, -(-size // width), width)


def axes(shape: tuple[int, ...]) -> list[Axis]:
    """Returns the axes of a shape.

    Raises:
        Unsupported: They make no piece, or more than `MOST_PIECES`.
    """
    result = [axis(size) for size in shape]
    if not 0 < math.prod(each.parts for each in result) <= MOST_PIECES:
        raise Unsupported(f"an array of shape {shape}")
    return result


def widths(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of each piece."""
    return tuple(each.width for each in axes(shape) if each.width)


def rank_before(shape: tuple[int, ...], which: int) -> int:
    """Returns the axis of a piece that belongs to axis ``which`` of the array, which must have a width."""
    return sum(1 for each in axes(shape)[:which] if each.width)


def positions(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yields the place of each piece."""
    return np.ndindex(*(each.parts for each in axes(shape)))


def make(shape: tuple[int, ...], dtype: Any, piece: Any) -> Block:
    """Makes the array whose pieces are ``piece(place)``."""
    pieces = np.empty([each.parts for each in axes(shape)], object)
    for place in positions(shape):
        pieces[place] = piece(place)
    return Block(tuple(shape), np.dtype(dtype), pieces)


def full(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """Makes a piece of the widths ``shape`` that is filled with a number."""
    number = np.dtype(dtype).type(value)
    return jax.lax.broadcast(number, shape) if shape else number


def spread(piece: Any, shape: tuple[int, ...]) -> Any:
    """Broadcasts a number to a piece of the widths ``shape``; leaves a piece as it is."""
    return jax.lax.broadcast(piece, shape) if shape and jnp.ndim(piece) == 0 else piece


def counter(shape: tuple[int, ...], place: tuple[int, ...], which: int) -> Any:
    """Returns the positions along axis ``which`` of the array, int32, as a piece at ``place``."""
    each = axes(shape)[which]
    if not each.width:
        return full(widths(shape), place[which], np.int32)
    along = jax.lax.broadcasted_iota(np.int32, widths(shape), rank_before(shape, which))
    return along + np.int32(place[which] * each.width) if place[which] else along


def inside(shape: tuple[int, ...], place: tuple[int, ...], whiches: Any = None) -> Any:
    """Returns where a piece lies within its array, bool, or None if it does everywhere.

    Args:
        shape: The shape of the array.
        place: The place of the piece.
        whiches: The axes of the array that count; None: all.
    """
    mask = None
    for which in range(len(shape)) if whiches is None else whiches:
        each = axes(shape)[which]
        if each.width and (place[which] + 1) * each.width > each.size:
            here = counter(shape, place, which) < full(widths(shape), each.size, np.int32)
            mask = here if mask is None else mask & here
    return mask


def only_inside(block: Block, place: tuple[int, ...], value: Any, whiches: Any = None) -> Any:
    """Returns a piece that holds ``value`` beyond the ends of the axes ``whiches`` (None: all)."""
    mask, piece = inside(block.shape, place, whiches), block.pieces[place]
    return piece if mask is None else jnp.where(mask, piece, full(piece.shape, value, block.dtype))


def _offsets(view: View, place: tuple[int, ...], rows: Any = None) -> Any:
    """Returns where in the flat array a piece lies; ``rows`` replaces the positions along the first axis."""
    strides = [math.prod(view.shape[i + 1 :]) for i in range(len(view.shape))]
    total = np.int32(0) if isinstance(view.start, int) and view.start == 0 else view.start
    at = spread(total, widths(view.shape))
    for which, stride in enumerate(strides):
        along = counter(view.shape, place, which) if which or rows is None else rows
        at = at + (along * np.int32(stride) if stride != 1 else along)
    return at


def load(view: View, again: bool = False) -> Block:
    """Reads an array from memory, in pieces, with zeros beyond its axes.

    With ``again`` it is read at this point even if it was read before, so that no registers hold it in between.
    """
    return make(view.shape, view.dtype, lambda place: _load(view, place, _offsets(view, place), None, again=again))


def take(view: View, rows: Block, fill: Any) -> Block:
    """Reads rows ``[M]`` of an array in memory ``[N, ...]``, as ``[M, ...]``; ``fill`` where there is no such row."""
    size, result = view.shape[0], View((*rows.shape, *view.shape[1:]), view.dtype, view.ref, view.start)

    def piece(place: tuple[int, ...]) -> Any:
        own = rows.pieces[place[:1]]
        chosen = _aligned(own, result.shape)
        valid = (chosen >= full(jnp.shape(chosen), 0, np.int32)) & (chosen < full(jnp.shape(chosen), size, np.int32))
        return _load(result, place, _offsets(result, place, chosen), valid, fill)

    return make(result.shape, view.dtype, piece)


def _aligned(piece: Any, shape: tuple[int, ...]) -> Any:
    """Broadcasts a number, or a piece of the first axis alone, to all axes of an array's pieces."""
    wide = widths(shape)
    return jax.lax.broadcast_in_dim(piece, wide, (0,)) if jnp.ndim(piece) else spread(piece, wide)


def _load(view: View, place: tuple[int, ...], offsets: Any, valid: Any, fill: Any = 0, again: bool = False) -> Any:
    _, plgpu = compat.pallas()
    mask = inside(view.shape, place)
    mask = valid if mask is None else mask if valid is None else mask & valid
    if mask is None:
        return plgpu.load(view.ref.at[offsets], volatile=again)
    other = full(jnp.shape(offsets), fill, view.dtype)
    return plgpu.load(view.ref.at[offsets], mask=mask, other=other, volatile=again)


def store(view: View, block: Block) -> None:
    """Writes an array into memory."""
    _, plgpu = compat.pallas()
    for place in positions(view.shape):
        offsets, mask = _offsets(view, place), inside(view.shape, place)
        value = spread(jnp.asarray(block.pieces[place], view.dtype), widths(view.shape))
        plgpu.store(view.ref.at[offsets], value, mask=mask)


def flat(block: Block) -> list[Array]:
    """Lists the pieces of an array, each as a JAX array."""
    return [spread(jnp.asarray(piece, block.dtype), widths(block.shape)) for piece in block.pieces.reshape(-1)]


def unflat(shape: tuple[int, ...], dtype: Any, pieces: Any) -> Block:
    """Makes the array of such a list, the inverse of `flat`."""
    remaining = iter(pieces)
    return make(shape, dtype, lambda place: next(remaining))
