"""Trees of arrays as safetensors files, written piece by piece without copies, and read back onto devices."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError
from purerl.store import regular_files
from purerl.types import PyTree

DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""Names of dtypes in a safetensors file."""


Put = Callable[[np.ndarray, Any], jax.Array]
"""Places the array that was read for a leaf, which is its second argument."""
on_default: Put = lambda array, leaf: jnp.asarray(array)


def blocks(tree: PyTree, rows: int | None = None) -> Iterator[Any]:
    """Yields the bytes of a file, piece by piece, without a copy of arrays that lie in the host's memory.

    Args:
        tree: A tree of arrays and typed keys, which become their uint32 words.
        rows: If given, only so many rows of the leading axis of every array are written.
    """
    return file_of(named(tree), rows)


def named(tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a tree by their names in a file, typed keys as their words."""
    return {jax.tree_util.keystr(at): plain(leaf) for at, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def file_of(leaves: Mapping[str, Any], rows: int | None = None) -> Iterator[Any]:
    """Yields the `blocks` of arrays by their names."""
    yield _header(leaves, rows)
    for leaf in leaves.values():
        yield from _pieces(leaf, rows)


def on_host(tree: PyTree, rows: int | None = None) -> PyTree:
    """Copies ``tree`` to numpy arrays, with typed keys as their words; the copy has the `blocks` of ``tree``."""

    def copy(leaf: Any) -> np.ndarray:
        pieces = [piece.view(leaf.dtype) for piece in _pieces(leaf, rows)]
        return np.concatenate(pieces).reshape(_shape(leaf, rows))

    return jax.tree.map(lambda leaf: copy(plain(leaf)), tree)


def read(path: Path, like: PyTree, put: Put = on_default) -> PyTree:
    """Reads the arrays of a file of `blocks` in the structure of ``like``.

    The caller has verified that the file is what was written.

    Args:
        path: The file.
        like: A tree of arrays or of `jax.ShapeDtypeStruct`.
        put: ``put(array, leaf)`` places the array of a leaf of ``like``.

    Raises:
        ConfigError: Arrays differ from ``like`` in name, shape or dtype, which is known before any is allocated (the
            message names the first), or the file ends too soon.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    shapes = {jax.tree_util.keystr(at): jax.eval_shape(plain, leaf) for at, leaf in leaves}
    read_leaves = []
    with regular_files.opened(path)[0] as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        stored = {name: (tuple(array["shape"]), array["dtype"]) for name, array in header.items()}
        expected = {name: (shape.shape, DTYPES[shape.dtype.name]) for name, shape in shapes.items()}
        for name in [*expected, *stored]:
            if expected.get(name) != stored.get(name):
                raise ConfigError(
                    f"{path}: {name} is {stored.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
                )
        for (_, leaf), shape in zip(leaves, shapes.values(), strict=True):
            array = np.empty(shape.shape, shape.dtype)
            fill(file, array, path)
            read_leaves.append(placed(array, leaf, put))
    return jax.tree.unflatten(structure, read_leaves)


def fill(file: Any, array: np.ndarray, path: Path) -> None:
    """Reads the next bytes of a file into a contiguous array. Raises `ConfigError` if the file ends too soon."""
    if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
        raise ConfigError(f"{path}: is cut off")


def placed(array: np.ndarray, leaf: Any, put: Put) -> jax.Array:
    """Places the array that was read for a leaf by ``put``; makes a typed key of it if the leaf is one."""
    there = put(array, leaf)
    return jax.random.wrap_key_data(there) if _is_key(leaf) else there


def _is_key(leaf: Any) -> bool:
    """Returns whether a leaf is an array of typed random keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Any) -> Any:
    """Returns a leaf, or its uint32 words if it is a typed key."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _shape(leaf: Any, rows: int | None) -> tuple[int, ...]:
    """Returns the shape of an array, or of its first ``rows``."""
    return leaf.shape if rows is None else (min(rows, leaf.shape[0]), *leaf.shape[1:])


def _pieces(leaf: Any, rows: int | None) -> Iterator[np.ndarray]:
    """Yields the bytes of an array, or of its first ``rows``, in order, as vectors of uint8.

    There is no copy where its memory is the host's and whole, or in parts along its leading axis.
    """
    parts = [(0, leaf)]
    shards = [x for x in leaf.addressable_shards if x.replica_id == 0] if isinstance(leaf, jax.Array) else []
    if shards and all(shard.data.shape[1:] == leaf.shape[1:] for shard in shards):
        parts = sorted(((shard.index[0].start or 0) if shard.index else 0, i) for i, shard in enumerate(shards))
        parts = [(start, shards[i].data) for start, i in parts]
    for start, part in parts:
        array = np.asarray(part)
        part_saved = array if rows is None else array[: max(0, rows - start)]
        yield np.ascontiguousarray(part_saved).reshape(-1).view(np.uint8)


def _header(leaves: Mapping[str, Any], rows: int | None) -> bytes:
    """Makes the beginning of a safetensors file: the header's length, and the dtype, shape and place of each array."""
    entries, end = {}, 0
    for name, leaf in leaves.items():
        shape, start = _shape(leaf, rows), end
        end += int(np.prod(shape, dtype=object)) * leaf.dtype.itemsize
        entries[name] = {"dtype": DTYPES[leaf.dtype.name], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
