"""Trees of arrays: reshaped, indexed, named and counted, leaf by leaf."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial

from purerl.types import Array, Metrics, PyTree


def like(constant, array):
    """``constant`` with leading axes of length one, to combine with ``array`` without rank promotion."""
    return constant.reshape((1,) * (array.ndim - constant.ndim) + constant.shape)


UNROLL = 2
"""Updates in one trip of a scan over updates."""


def scan_means(
    step: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]], state: PyTree, xs: PyTree
) -> tuple[PyTree, Metrics]:
    """Scans updates ``step(state, x) -> (state, metrics)`` over ``xs``. Returns the last state and the metrics' means.

    The metrics of an update travel as one vector.
    """

    def packed(state, x):
        state, metrics = step(state, x)
        row, unpack = ravel_pytree(metrics)
        return state, (row, Partial(unpack))

    state, (rows, unpack) = jax.lax.scan(packed, state, xs, unroll=UNROLL)
    return state, unpack(jnp.mean(rows, axis=0))


def merge(tree: PyTree, ndim: int) -> PyTree:
    """The first ``ndim`` axes of every leaf made one. What is summed over them then has the same bits alone and under
    vmap; sums over two axes take other orders there."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[ndim:]), tree)


def split(tree: PyTree, shape: tuple[int, ...]) -> PyTree:
    """The first axis of every leaf made ``shape`` again."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)


def restart(carry: PyTree, initial: PyTree, last: Array) -> PyTree:
    """A carry ``[B, ...]``, and ``initial`` instead for the environments whose episode ended, ``last`` ``[B]``."""
    return jax.tree.map(lambda new, old: jnp.where(last.reshape(-1, *[1] * (new.ndim - 1)), old, new), carry, initial)


def nbytes(tree: Any) -> int:
    """Bytes of all arrays in a tree, or of their shapes and types alone; a typed key counts its words.

    ``nbytes(jax.eval_shape(replay.init, item))`` is what a buffer will hold; nothing is allocated.
    """
    size = lambda x: int(np.prod(x.shape, dtype=object)) * getattr(x.dtype, "itemsize", 8)  # noqa: E731
    return sum(map(size, jax.tree.leaves(tree)))


def shapes(tree: PyTree, sharding: Any = None) -> PyTree:
    """The tree with shapes and types for its arrays, lying on devices as ``sharding`` says."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def zeros(tree: PyTree) -> PyTree:
    """Zeros of the tree's shapes and types, in numpy: nothing is computed on a device."""
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)


def take(tree: PyTree, index: Any) -> PyTree:
    """Elements ``index`` of the leading axis of every leaf."""
    return jax.tree.map(lambda x: x[index], tree)


def fill(tree: PyTree, size: int) -> PyTree:
    """Repeats the last member until there are ``size`` of them."""
    return take(tree, np.minimum(np.arange(size), jax.tree.leaves(tree)[0].shape[0] - 1))


def named_leaves(tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
