"""Operations that only move numbers: transposing, broadcasting, reshaping, cutting and joining `Block`s."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.kernels import blocks
from purerl.kernels.blocks import Block, Unsupported

MOST_COLUMNS = 32
"""The most numbers of an axis with a width that are taken out or put in one by one."""


def transposed(x: Block, order: Sequence[int]) -> Block:
    """Returns the array with its axes in another order."""
    shape = tuple(x.shape[i] for i in order)
    wide = [blocks.rank_before(x.shape, i) for i in order if blocks.axis(x.shape[i]).width]
    pieces = np.transpose(x.pieces, order)
    if wide == sorted(wide):
        return Block(shape, x.dtype, pieces)
    return blocks.make(shape, x.dtype, lambda place: jnp.transpose(pieces[place], wide))


def broadcast(x: Block, shape: Sequence[int], dimensions: Sequence[int]) -> Block:
    """Computes `jax.lax.broadcast_in_dim`."""
    shape, wide = tuple(shape), blocks.widths(tuple(shape))
    kept = [(i, to) for i, to in enumerate(dimensions) if blocks.axis(x.shape[i]).width]
    ranks = tuple(blocks.rank_before(shape, to) for _, to in kept)

    def piece(place: tuple[int, ...]) -> Any:
        own = x.pieces[tuple(0 if x.shape[i] == 1 else place[to] for i, to in enumerate(dimensions))]
        if not kept or len(wide) == len(kept):
            return blocks.spread(own, wide)
        return jax.lax.broadcast_in_dim(own, wide, ranks)

    return blocks.make(shape, x.dtype, piece)


def reshaped(x: Block, shape: Sequence[int]) -> Block:
    """Returns the array with other axes, of which those with a width stay.

    Raises:
        Unsupported: An axis with a width would change in another way than between a vector and axes without a width.
    """
    shape = tuple(shape)
    before, after = _groups(x.shape), _groups(shape)
    if before == after:
        return Block(shape, x.dtype, x.pieces.reshape([blocks.axis(size).parts for size in shape]))
    if math.prod(shape) != math.prod(x.shape):
        raise Unsupported(f"a reshape of {x.shape} to {shape}")
    if len(_long(x.shape)) == 1 and all(n == 1 for n in x.shape if n not in _long(x.shape)):
        return _taken_apart(x, shape)
    if len(_long(shape)) == 1 and all(n == 1 for n in shape if n not in _long(shape)):
        return _put_together(x, shape)
    raise Unsupported(f"a reshape of {x.shape} to {shape}")


def _long(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if blocks.axis(size).width]


def _groups(shape: tuple[int, ...]) -> list[int]:
    """Lists axes with a width as minus their sizes, and between them the products of the others."""
    groups, product = [], 1
    for size in shape:
        if blocks.axis(size).width:
            groups += [product, -size]
            product = 1
        else:
            product *= size
    return [*groups, product]


def _taken_apart(x: Block, shape: tuple[int, ...]) -> Block:
    """Returns a vector as an array of axes without a width."""
    if _long(shape):
        raise Unsupported(f"a reshape of {x.shape} to {shape}")
    which = next(i for i, size in enumerate(x.shape) if blocks.axis(size).width)
    columns = [column.pieces.reshape(-1)[0] for column in _columns(x, which, range(x.shape[which]))]
    return blocks.unflat(shape, x.dtype, columns)


def _put_together(x: Block, shape: tuple[int, ...]) -> Block:
    """Returns an array of axes without a width as a vector."""
    if _long(x.shape):
        raise Unsupported(f"a reshape of {x.shape} to {shape}")
    which = next(i for i, size in enumerate(shape) if blocks.axis(size).width)
    columns = [blocks.unflat((1,) * len(shape), x.dtype, [piece]) for piece in x.pieces.reshape(-1)]
    return joined(columns, which)


def chosen(x: Block, which: int, places: range) -> Block:
    """Returns the numbers at ``places`` along an axis."""
    if len(places) == x.shape[which] and places.step == 1:
        return x
    if not blocks.axis(x.shape[which]).width:
        shape = (*x.shape[:which], len(places), *x.shape[which + 1 :])
        columns = np.split(x.pieces, x.shape[which], axis=which)
        own = [Block((*x.shape[:which], 1, *x.shape[which + 1 :]), x.dtype, columns[i]) for i in places]
        return joined(own, which) if blocks.axis(shape[which]).width else _beside(own, which)
    return joined(_columns(x, which, places), which)


def _columns(x: Block, which: int, places: range) -> list[Block]:
    """Lists the numbers at ``places`` along an axis with a width, as arrays of length 1 there."""
    each, rank = blocks.axis(x.shape[which]), blocks.rank_before(x.shape, which)
    if len(places) > MOST_COLUMNS:
        raise Unsupported(f"{len(places)} of {x.shape[which]} numbers of an axis")
    shape = (*x.shape[:which], 1, *x.shape[which + 1 :])

    def column(i: int) -> Block:
        def piece(place: tuple[int, ...]) -> Any:
            at = (*place[:which], i // each.width, *place[which + 1 :])
            own = x.pieces[at]
            here = blocks.counter(x.shape, at, which) == blocks.full(jnp.shape(own), i, np.int32)
            zero = blocks.full(jnp.shape(own), 0, x.dtype)
            return _summed(jnp.where(here, own, zero), rank)

        return blocks.make(shape, x.dtype, piece)

    return [column(i) for i in places]


def _summed(piece: Any, rank: int) -> Any:
    """Sums over an axis on which only one number is not zero."""
    if piece.dtype == bool:
        return jnp.max(jnp.asarray(piece, np.int32), axis=rank) > 0
    return jnp.sum(piece, axis=rank, dtype=piece.dtype)


def joined(given: list[Block], which: int) -> Block:
    """Computes `jax.lax.concatenate`."""
    given = [x for x in given if x.shape[which]]
    size = sum(x.shape[which] for x in given)
    if len(given) == 1:
        return given[0]
    if not blocks.axis(size).width:
        return _beside(given, which)
    columns = [column for x in given for column in _all_columns(x, which)]
    shape = (*given[0].shape[:which], size, *given[0].shape[which + 1 :])
    if size > MOST_COLUMNS:
        raise Unsupported(f"{size} numbers side by side")
    rank, wide = blocks.rank_before(shape, which), blocks.widths(shape)
    others = tuple(i for i in range(len(wide)) if i != rank)

    def piece(place: tuple[int, ...]) -> Any:
        result = blocks.full(wide, 0, given[0].dtype)
        here = blocks.counter(shape, place, which)
        for i, column in enumerate(columns):
            own = column.pieces[(*place[:which], 0, *place[which + 1 :])]
            own = jax.lax.broadcast_in_dim(own, wide, others) if jnp.ndim(own) else blocks.spread(own, wide)
            result = jnp.where(here == blocks.full(wide, i, np.int32), own, result)
        return result

    return blocks.make(shape, given[0].dtype, piece)


def _all_columns(x: Block, which: int) -> list[Block]:
    if blocks.axis(x.shape[which]).width:
        return _columns(x, which, range(x.shape[which]))
    shape = (*x.shape[:which], 1, *x.shape[which + 1 :])
    return [Block(shape, x.dtype, column) for column in np.split(x.pieces, x.shape[which], axis=which)]


def _beside(given: list[Block], which: int) -> Block:
    """Computes `joined` along an axis without a width."""
    size = sum(x.shape[which] for x in given)
    shape = (*given[0].shape[:which], size, *given[0].shape[which + 1 :])
    return Block(shape, given[0].dtype, np.concatenate([x.pieces for x in given], axis=which))


def reversed_along(x: Block, which: int) -> Block:
    """Returns the array in reverse order along an axis."""
    if blocks.axis(x.shape[which]).width:
        return joined(_columns(x, which, range(x.shape[which]))[::-1], which)
    return Block(x.shape, x.dtype, np.flip(x.pieces, which))
