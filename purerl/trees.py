"""Operations on pytrees of arrays, leaf by leaf: reshaping, indexing, naming leaves, counting bytes."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial

from purerl import backend
from purerl.types import Array, Metrics, PyTree


def like(constant, array):
    """Adds leading axes of length 1 to ``constant`` up to the rank of ``array``, to avoid rank promotion."""
    return constant.reshape((1,) * (array.ndim - constant.ndim) + constant.shape)


UNROLL = 2
"""The updates per iteration of the compiled loop in `scan_means` on CPU (the ``unroll`` of `jax.lax.scan`).

For a GPU XLA fuses biases and activations into matrix products only where a loop holds one update (jaxlib 0.10.2).
"""


def scan_means(
    step: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]], state: PyTree, xs: PyTree
) -> tuple[PyTree, Metrics]:
    """Scans updates ``step(state, x) -> (state, metrics)`` over ``xs``; returns the last state and the mean metrics.

    ``xs`` has the leading axis ``[updates]``. Inside the scan the metrics of an update are packed into one vector.
    """

    def packed(state, x):
        state, metrics = step(state, x)
        row, unpack = ravel_pytree(metrics)
        return state, (row, Partial(unpack))

    with jax.named_scope("updates"):
        state, (rows, unpack) = jax.lax.scan(packed, state, xs, unroll=UNROLL if backend.is_cpu() else 1)
    return state, unpack(jnp.mean(rows, axis=0))


def strong(tree: PyTree) -> PyTree:
    """Makes arrays without weak types of the leaves of a tree, which are arrays or numbers."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), tree)


def length(tree: PyTree) -> int:
    """Returns the length of the leading axis, which must be the same for all leaves."""
    return jax.tree.leaves(tree)[0].shape[0]


LARGE = 2**14
"""Leaves with more numbers than this for each ``B`` are not packed, because packing would copy them."""


def pack(tree: PyTree) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Joins the leaves of a tree, each ``[B, ...]``, into as few arrays ``[B, K]`` as possible.

    For each ``B`` there is one array for all leaves of 32 bits and for ``[B]`` bools, and one for all other bools.
    Leaves of other types, and those larger than `LARGE`, stay as they are. Nothing is rounded.

    Returns:
        The packed arrays, and a function that makes the tree of them again, also where more axes lead.
    """
    leaves, structure = jax.tree.flatten(tree)
    places, shapes = [_place(x) for x in leaves], [(x.shape[1:], x.dtype) for x in leaves]
    together: dict[tuple[int, str], Array] = {}
    for place in sorted({place for place in places if place}):
        parts = [_bits(x, place[1]) for x, own in zip(leaves, places, strict=True) if own == place]
        together[place] = jnp.concatenate([x.reshape(x.shape[0], -1) for x in parts], axis=-1)
    alone = [x for x, place in zip(leaves, places, strict=True) if place is None]

    def unpack(packed: PyTree) -> PyTree:
        together, alone = packed
        others, starts, leaves = iter(alone), dict.fromkeys(together, 0), []
        for place, (shape, dtype) in zip(places, shapes, strict=True):
            if place is None:
                leaves.append(next(others))
                continue
            start, width = starts[place], math.prod(shape)
            starts[place] += width
            x = together[place][..., start : start + width]
            leaves.append(_bits(x, dtype).reshape(*x.shape[:-1], *shape))
        return jax.tree.unflatten(structure, leaves)

    return (together, alone), unpack


def _place(x: Any) -> tuple[int, str] | None:
    """Returns rows and type of the array of `pack` that holds a leaf; None: the leaf stays as it is."""
    if math.prod(x.shape[1:]) > LARGE:
        return None
    if x.dtype == bool:
        return x.shape[0], "bool" if x.ndim > 1 else "int32"
    if jnp.issubdtype(x.dtype, jax.dtypes.extended) or x.dtype.itemsize != 4:
        return None
    return x.shape[0], "int32"


def _bits(x: Array, dtype: Any) -> Array:
    """Returns the same bits as another type; bools are converted as numbers."""
    if x.dtype == dtype:
        return x
    return x.astype(dtype) if bool in (x.dtype, jnp.dtype(dtype)) else jax.lax.bitcast_convert_type(x, dtype)


def merge(tree: PyTree, ndim: int) -> PyTree:
    """Merges the first ``ndim`` axes of every leaf into one.

    A sum over the merged axis has the same bits with and without vmap; a sum over several axes may not, because vmap
    can change the order of summation.
    """
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[ndim:]), tree)


def split(tree: PyTree, shape: tuple[int, ...]) -> PyTree:
    """Splits the first axis of every leaf into axes of ``shape``: the inverse of `merge`."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)


def restart(carry: PyTree, initial: PyTree, last: Array) -> PyTree:
    """Returns ``carry`` ``[B, ...]`` with the rows of ``initial`` where an episode ended: ``last`` ``[B]`` (bool)."""
    return jax.tree.map(lambda new, old: jnp.where(last.reshape(-1, *[1] * (new.ndim - 1)), old, new), carry, initial)


def nbytes(tree: Any) -> int:
    """Returns the bytes of all leaves of a tree, arrays or `jax.ShapeDtypeStruct`.

    A typed key counts as its uint32 words. ``nbytes(jax.eval_shape(replay.init, item))`` is the size of a buffer,
    without allocating it.
    """
    size = lambda x: int(np.prod(x.shape, dtype=object)) * getattr(x.dtype, "itemsize", 8)
    return sum(map(size, jax.tree.leaves(tree)))


def shapes(tree: PyTree, sharding: Any = None) -> PyTree:
    """Replaces every array of a tree by a `jax.ShapeDtypeStruct`, with ``sharding`` if given."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def zeros(tree: PyTree) -> PyTree:
    """Returns zeros of the tree's shapes and dtypes, as numpy arrays: nothing is computed on a device."""
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)


def take(tree: PyTree, index: Any) -> PyTree:
    """Indexes the leading axis of every leaf with ``index``."""
    return jax.tree.map(lambda x: x[index], tree)


def fill(tree: PyTree, size: int) -> PyTree:
    """Pads the leading axis of every leaf to the length ``size`` by repeating the last element."""
    return take(tree, np.minimum(np.arange(size), length(tree) - 1))


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Returns the leaves by their path, its parts joined by dots."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
