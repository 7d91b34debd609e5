"""Trees of arrays as safetensors files: written piece by piece without copies, and read back onto devices."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError
from purerl.store import guards, writing
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
    with guards.opened(path)[0] as file:
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


MOST_HEADER_BYTES = 2**24
"""The size of the largest safetensors header that is read, in bytes."""
MOST_AXES = 32
METADATA = "__metadata__"
"""The name of the entry of a header that is not an array but texts by their names."""


class Place(NamedTuple):
    """The shape and dtype of an array in a safetensors file, and its place in the data."""

    shape: tuple[int, ...]
    dtype: str
    begin: int
    end: int


class Header(NamedTuple):
    """The arrays of a safetensors file by their names, and its metadata."""

    places: dict[str, Place]
    metadata: dict[str, str]


def read_header(file: BinaryIO, size: int, path: Path) -> Header:
    """Reads the header of a safetensors file of ``size`` bytes, whose arrays lie one after the other up to its end.

    It leaves ``file`` where the data begin.

    Raises:
        ConfigError: The file is any other.
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise ConfigError(f"{path}: not a safetensors file, or truncated")
    try:
        document_read = guards.parse_json(file.read(length))
    except ConfigError as error:
        raise ConfigError(f"{path}: not a safetensors file ({error})") from None
    entries: dict[str, Any] = document_read if isinstance(document_read, dict) else {"": None}
    metadata: Any = entries.pop(METADATA, {})
    texts = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    places, end = {name: _place(entry) for name, entry in entries.items()}, 0
    for place in sorted((place for place in places.values() if place), key=lambda place: (place.begin, place.end)):
        end = place.end if place.begin == end else -1
    if not texts or None in places.values() or end != size - 8 - length:
        raise ConfigError(f"{path}: its header does not describe its {size} bytes")
    return Header({name: place for name, place in places.items() if place}, metadata)


def read_checked(
    file: BinaryIO, path: Path, places: dict[str, Place], like: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Reads the arrays of a file whose `read_header` was read.

    Args:
        file: The file, at the beginning of its data.
        path: Its path, for messages.
        places: The places of its arrays, by name.
        like: Expected arrays by name, with shapes and dtypes.

    Raises:
        ConfigError: An array differs, which is known before any is allocated (the message names the first), or a byte
            of a bool is neither true nor false.
    """
    for name in sorted(like.keys() | places.keys()):
        expected_kind = _kind(like[name].shape, DTYPES[like[name].dtype.name]) if name in like else "nothing"
        stored = _kind(places[name].shape, places[name].dtype) if name in places else "missing"
        if stored != expected_kind:
            raise ConfigError(f"{path}: {name[:80]!r} is {stored}, expected {expected_kind}")
    data = file.read()
    arrays = {
        name: np.frombuffer(data[places[name].begin : places[name].end], leaf.dtype).reshape(leaf.shape)
        for name, leaf in like.items()
    }
    for name, array in arrays.items():
        if array.dtype == bool and np.any(array.view(np.uint8) > 1):
            raise ConfigError(f"{path}: {name[:80]!r} has bytes that are neither true nor false")
    return arrays


def check_finite(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises `ConfigError`, which names the array, for numbers that are not finite."""
    for name, array in arrays.items():
        if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact) and not np.all(np.isfinite(array)):
            raise ConfigError(f"{path}: {name} has numbers that are not finite")


def digest(document: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Computes the SHA-256 of a JSON document and the arrays, as hexadecimal digits.

    It covers the name, dtype, shape and bytes of every array.
    """
    hashed = hashlib.sha256(writing.canonical(document))
    for name, array in sorted(arrays.items()):
        hashed.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def _kind(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype}[{', '.join(map(str, shape[:8]))}{', ...' if len(shape) > 8 else ''}]"


def _place(entry: Any) -> Place | None:
    """Reads an entry of a header; None if it is not valid."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return None
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    names = [name for name, code in DTYPES.items() if code == dtype]
    if not names or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        return None
    size = math.prod(shape) * jax.numpy.dtype(names[0]).itemsize
    return Place(tuple(shape), dtype, *offsets) if offsets[1] - offsets[0] == size else None


def _are_sizes(value: Any) -> bool:
    """Returns whether ``value`` is a list of at most `MOST_AXES` whole numbers of 0 or more."""
    return isinstance(value, list) and len(value) <= MOST_AXES and all(type(x) is int and x >= 0 for x in value)
