"""Arrays as safetensors files: written without copies, read if they are what is expected; their digests.

A tree of arrays may be in several files, one of each process. A part of an array is in them as
``NAME@START,START,...``, by the indices along all axes at which the part begins. Empty arrays are left out.
"""

import contextlib
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors

from purerl import processes
from purerl.errors import ConfigError, printable
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
MOST_HEADER_BYTES = 2**24
"""The size of the largest header of a file that is read, in bytes: parsing takes ten times its memory."""
SEAL = "sha256"
"""The name of a document's digest, which does not cover itself."""
PART = re.compile(r"(.*)@(|[0-9]{1,15}(?:,[0-9]{1,15})*)", re.DOTALL)
"""The name of a part of an array."""
Put = Callable[[np.ndarray, Any], jax.Array]
"""Places the array that was read for a leaf, which is its second argument."""
on_default: Put = lambda array, leaf: jnp.asarray(array)


class ArrayType(NamedTuple):
    """The shape of an array, and its dtype's name in a safetensors file."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape[:8]))}{', ...' if len(self.shape) > 8 else ''}]"


def types(arrays: Mapping[str, Any]) -> dict[str, ArrayType]:
    """Returns the types of arrays, or of anything else with shapes and dtypes, by their names."""
    return {name: ArrayType(tuple(array.shape), DTYPES[array.dtype.name]) for name, array in arrays.items()}


def blocks(arrays: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the bytes of a safetensors file, block by block.

    An array that lies in the host's memory is not copied.

    Args:
        arrays: By their names, what `numpy.asarray` makes the arrays of, each with its shape and dtype.
    """
    entries, end = {}, 0
    for name, (shape, dtype) in types(arrays).items():
        start, end = end, end + math.prod(shape) * arrays[name].dtype.itemsize
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for array in arrays.values():
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def opened(path: Path, most_bytes: float = math.inf) -> Any:
    """Opens a regular safetensors file of at most ``most_bytes`` by the library, which maps it to memory.

    The library verifies that the header describes the file's size.

    Returns:
        A context, whose value `stored` and `read` take.

    Raises:
        ConfigError: It is no such file, or its header is larger than `MOST_HEADER_BYTES`.
    """
    with guards.opened(path, most_bytes)[0] as file:
        header = int.from_bytes(file.read(8), "little")
    reason = f"a header of {header} bytes"
    try:
        if header <= MOST_HEADER_BYTES:
            return safetensors.safe_open(path, framework="np")
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        reason = printable(str(error).removeprefix("Error while deserializing header: "))[:120]
    raise ConfigError(f"{path}: not a safetensors file, or truncated ({reason})")


def stored(file: Any) -> dict[str, ArrayType]:
    """Returns the types of the arrays in an opened file, by their names; none is read."""
    places = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    return {name: ArrayType(tuple(place.get_shape()), place.get_dtype()) for name, place in places.items()}


def check_types(path: Path, found: Mapping[str, ArrayType], expected: Mapping[str, ArrayType]) -> None:
    """Raises `ConfigError`, which names the first array in ``path`` that is not as expected, missing or too many."""
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            wanted = expected.get(name, "nothing")
            raise ConfigError(f"{path}: {name[:80]!r} is {found.get(name, 'missing')}, expected {wanted}")


def read(path: Path, file: Any, name: str) -> np.ndarray:
    """Reads an array of the opened file ``path``, whose dtype is one of `DTYPES`.

    Raises:
        ConfigError: As `check_bools` does.
    """
    array: np.ndarray = file.get_tensor(name)
    check_bools(path, name, array)
    return array


def check_bools(path: Path, name: str, array: np.ndarray) -> None:
    """Raises `ConfigError` if a byte of bools, the array ``name`` of a file, is neither true nor false."""
    if array.dtype == bool and np.any(array.view(np.uint8) > 1):
        raise ConfigError(f"{path}: {name[:80]!r} has bytes that are neither true nor false")


def read_all(path: Path, file: Any, like: Mapping[str, Any] | None, *, mapped: bool = False) -> dict[str, np.ndarray]:
    """Reads the arrays of the opened file ``path``, which must have the names, shapes and dtypes of ``like``.

    With None they may be any arrays of numpy's own dtypes. If they are to be ``mapped``, they are those of `maps`.

    Raises:
        ConfigError: An array differs, which is known before any is allocated, or as `read` does.
    """
    found = stored(file)
    if like is None:
        of_numpy = {name for kind, name in DTYPES.items() if kind != "bfloat16"}
        for name, kind in found.items():
            if kind.dtype not in of_numpy:
                raise ConfigError(f"{path}: {name[:80]!r} is {kind}, which numpy has no dtype for")
    else:
        check_types(path, found, types(like))
    names = list(found if like is None else like)
    arrays = maps(path, {name: found[name] for name in names}) if mapped else {n: file.get_tensor(n) for n in names}
    for name, array in arrays.items():
        check_bools(path, name, array)
    return arrays


def maps(path: Path, found: Mapping[str, ArrayType]) -> dict[str, np.ndarray]:
    """Maps arrays of a safetensors file to memory, read-only: the system reads what is used of them, when it is used.

    Args:
        path: The file, which `opened` has verified.
        found: The types of the arrays in it, of numpy's own dtypes, by their names.

    Raises:
        ConfigError: The file is another one by now.
    """
    dtypes = {short: np.dtype(name) for name, short in DTYPES.items() if name != "bfloat16"}
    with guards.opened(path)[0] as file:
        try:
            size = int.from_bytes(file.read(8), "little")
            header = guards.parse_json(file.read(min(size, MOST_HEADER_BYTES)))
            whole = np.asarray(np.memmap(file, np.uint8, "r"))[8 + size :]
            part = lambda name: whole[slice(*header[name]["data_offsets"])]
            return {name: part(name).view(dtypes[kind.dtype]).reshape(kind.shape) for name, kind in found.items()}
        except (ConfigError, LookupError, TypeError, ValueError):
            raise ConfigError(f"{path}: was changed while it was read") from None


def digest(document: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Computes the SHA-256 of a JSON document and the arrays, as hexadecimal digits.

    It covers all of the document but its own `SEAL`, and the name, dtype, shape and bytes of every array.
    """
    hashed = hashlib.sha256(writing.canonical({name: value for name, value in document.items() if name != SEAL}))
    for name, array in sorted(arrays.items()):
        hashed.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def check_digest(path: Path, document: dict[str, Any], arrays: Mapping[str, np.ndarray], what: str = "") -> None:
    """Raises `ConfigError` unless a document has its and its arrays' `digest`, and all numbers are finite.

    ``what`` begins the message after the path.
    """
    if digest(document, arrays) != document.get(SEAL):
        raise ConfigError(f"{path}: {what}was changed after it was written (sha256 differs)")
    for name, array in arrays.items():
        if jnp.issubdtype(array.dtype, jnp.inexact) and not np.all(np.isfinite(array)):
            raise ConfigError(f"{path}: {name} has numbers that are not finite")


class Part(NamedTuple):
    """A part of an array that is to be written: the first rows of ``array``, so many as ``shape`` has.

    `numpy.asarray` returns them, without a copy if ``array`` lies in the host's memory.
    """

    array: Any
    shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        """Returns the dtype."""
        return self.array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self.array)
        rows = array[: self.shape[0]] if self.shape else array
        return rows.copy() if copy else rows


def plain(leaf: Any) -> Any:
    """Returns a leaf, or its uint32 words if it is an array of typed random keys."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def placed(array: np.ndarray, leaf: Any, put: Put = on_default) -> jax.Array:
    """Places the array that was read for a leaf by ``put``; makes typed keys of it if the leaf has them."""
    there = put(array, leaf)
    return jax.random.wrap_key_data(there) if _is_key(leaf) else there


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def of_process(shard: Any) -> bool:
    """Returns whether this process, on one of whose devices a shard lies, is the one that writes it."""
    return shard.replica_id == 0


def own(tree: PyTree, rows: int | None = None, mine: Callable[[Any], bool] = of_process) -> dict[str, Part]:
    """Returns the parts of a tree of arrays and typed keys that this process writes, by name and place. None is copied.

    No two processes write the same part, and together they write all. What is no array of JAX is the first process's.

    Args:
        tree: A tree of arrays and typed keys, which become their uint32 words.
        rows: The number of rows of the leading axis of every array that are written; None: all.
        mine: ``mine(shard)`` returns whether this process writes a shard.
    """
    parts = {}
    for at, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = plain(leaf)
        if isinstance(array, jax.Array):
            shards = [(shard.index, shard.data) for shard in array.addressable_shards if mine(shard)]
        else:
            shards = [((slice(None),) * array.ndim, array)] if processes.is_first() else []
        for index, data in shards:
            starts, shape = [axis.start or 0 for axis in index], data.shape
            if rows is not None and shape:
                shape = (max(0, min(shape[0], rows - starts[0])), *shape[1:])
            if math.prod(shape):
                parts[f"{jax.tree_util.keystr(at)}@{','.join(map(str, starts))}"] = Part(data, shape)
    return parts


class StoredPart(NamedTuple):
    """A part of an array in an opened file.

    ``box`` are the indices at which the part begins and ends along all axes, ``dtype`` is its name in the file.
    """

    path: Path
    file: Any
    name: str
    dtype: str
    box: tuple[tuple[int, int], ...]

    def read(self) -> np.ndarray:
        """Reads the part. Raises `ConfigError` as `read` does."""
        return read(self.path, self.file, self.name)


def read_tree(folder: Path, paths: Sequence[Path], like: PyTree, put: Put = on_default) -> PyTree:
    """Reads a tree of arrays, each of whose parts is in one of several files, array after array.

    Args:
        folder: The folder of the files, for messages.
        paths: The files.
        like: A tree of arrays or of `jax.ShapeDtypeStruct`, in whose structure the arrays are returned.
        put: ``put(array, leaf)`` places the array of a leaf of ``like``.

    Raises:
        ConfigError: Arrays differ from ``like`` in name, shape or dtype, which is known before any is allocated (the
            message names the first), or are not whole; or a file is not what `opened` and `read` take.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {jax.tree_util.keystr(at): jax.eval_shape(plain, leaf) for at, leaf in leaves}
    in_files = {name: kind for name, kind in types(expected).items() if math.prod(kind.shape)}
    with contextlib.ExitStack() as stack:
        parts = _parts([(path, stack.enter_context(opened(path))) for path in paths])
        check_types(folder, {name: _whole(some) for name, some in parts.items()}, in_files)
        for name, some in parts.items():
            if not _tile([part.box for part in some], expected[name].shape):
                raise ConfigError(f"{folder}: {name[:80]!r} is not whole, or has parts twice")
        results = []
        for (_, leaf), (name, shape) in zip(leaves, expected.items(), strict=True):
            results.append(placed(_joined(parts.get(name, []), shape), leaf, put))
    return jax.tree.unflatten(structure, results)


def _parts(files: Sequence[tuple[Path, Any]]) -> dict[str, list[StoredPart]]:
    """Returns the parts of all arrays in opened files, by the arrays' names."""
    parts: dict[str, list[StoredPart]] = {}
    for path, file in files:
        for name, (shape, dtype) in stored(file).items():
            found = PART.fullmatch(name)
            starts = [int(start) for start in found[2].split(",") if start] if found else []
            if not found or len(starts) != len(shape):
                raise ConfigError(f"{path}: {name[:80]!r} is no part of an array")
            box = tuple((start, start + size) for start, size in zip(starts, shape, strict=True))
            parts.setdefault(found[1], []).append(StoredPart(path, file, name, dtype, box))
    return parts


def _whole(parts: Sequence[StoredPart]) -> ArrayType:
    """Returns the type of the array that has these parts."""
    ends = itertools.zip_longest(*([end for _, end in part.box] for part in parts), fillvalue=0)
    return ArrayType(tuple(map(max, ends)), "/".join(sorted({part.dtype for part in parts})))


def _tile(boxes: Sequence[tuple[tuple[int, int], ...]], shape: tuple[int, ...]) -> bool:
    """Returns whether boxes are those of a grid that covers an array of a shape."""
    if any(len(box) != len(shape) for box in boxes):
        return False
    edges = [sorted({0, size, *(box[axis][0] for box in boxes)}) for axis, size in enumerate(shape)]
    if math.prod(len(edge) - 1 for edge in edges) != len(boxes):
        return False
    return sorted(itertools.product(*map(itertools.pairwise, edges))) == sorted(boxes)


def _joined(parts: Sequence[StoredPart], shape: Any) -> np.ndarray:
    """Reads the parts of an array of the shape and dtype of ``shape``, and joins them if there are several."""
    if len(parts) == 1:
        return parts[0].read()
    array = np.empty(shape.shape, shape.dtype)
    for part in parts:
        array[tuple(slice(*edges) for edges in part.box)] = part.read()
    return array
