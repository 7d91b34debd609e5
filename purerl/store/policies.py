"""Saved policies: arrays as a safetensors file, with a JSON description and a digest beside it. No pickle."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np
import safetensors.numpy

from purerl import trees
from purerl.errors import ConfigError
from purerl.store import json_files, regular
from purerl.store.arrays import DTYPES
from purerl.store.atomic import atomic
from purerl.types import PyTree

FORMAT = 3
"""Format version of the policy files, written to ``policy.json``; other versions are refused."""
DESCRIPTION, ARRAYS = "policy.json", "policy.safetensors"
MOST_HEADER_BYTES = 2**24
"""Size of the largest safetensors header that is read, in bytes."""
MOST_AXES = 32


class Place(NamedTuple):
    """Where an array lies in the data of a safetensors file, and what it is there."""

    shape: tuple[int, ...]
    dtype: str
    begin: int
    end: int


def save_policy(directory: Path, policy: PyTree, description: dict[str, Any]) -> None:
    """Writes ``policy.safetensors`` and ``policy.json`` to ``directory``, each atomically.

    ``policy.json`` holds the format, ``description``, the shape and dtype of every array, and a SHA-256 over all of it
    and the arrays.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in trees.named_leaves(policy).items()}
    with atomic(directory / ARRAYS) as temporary:
        temporary.write_bytes(safetensors.numpy.save(arrays))
    shapes = {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}
    document = json.loads(json.dumps(json_files.finite({"format": FORMAT, **description, "arrays": shapes})))
    json_files.write_json(directory / DESCRIPTION, {**document, "sha256": _digest(document, arrays)})


def load_description(directory: Path) -> dict[str, Any]:
    """What ``policy.json`` holds. Raises `ConfigError` if it is no JSON object, or of another format.

    Nothing else of it has been checked: its digest is that of `load_policy`, which needs to know the shapes.
    """
    path = directory / DESCRIPTION
    document = json_files.read_json(path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not the description of a policy")
    version = document.get("format")
    if type(version) is not int or version != FORMAT:
        raise ConfigError(
            f"{path}: format {json.dumps(version)[:40]}, expected {FORMAT}; this version of purerl reads no other"
        )
    return document


def load_policy(directory: Path, document: dict[str, Any], like: PyTree) -> PyTree:
    """Reads the arrays of `save_policy` into the structure of ``like``, a tree of `jax.ShapeDtypeStruct`.

    ``document`` is that of `load_description`. Nothing is allocated before the file's header agrees with ``like`` and
    with the file's size. Raises `ConfigError` if the file is missing, if its arrays differ in name, shape or dtype, if
    anything in it or in ``document`` is not what was written, and for numbers that are not finite.
    """
    path, expected = directory / ARRAYS, trees.named_leaves(like)
    file, size = regular.opened(path)
    with file:
        found = _header(file, size, path)
        for name in sorted(expected.keys() | found.keys()):
            wanted = _kind(expected[name].shape, DTYPES[expected[name].dtype.name]) if name in expected else "nothing"
            stored = _kind(found[name].shape, found[name].dtype) if name in found else "missing"
            if stored != wanted:
                raise ConfigError(f"{path}: {name[:80]!r} is {stored}, expected {wanted}")
        data = file.read()
    arrays = {
        name: np.frombuffer(data[found[name].begin : found[name].end], leaf.dtype).reshape(leaf.shape)
        for name, leaf in expected.items()
    }
    written = {name: value for name, value in document.items() if name != "sha256"}
    if _digest(written, arrays) != document.get("sha256"):
        raise ConfigError(f"{path}: it and {DESCRIPTION} are not what was written (sha256 differs)")
    for name, array in arrays.items():
        if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact) and not np.all(np.isfinite(array)):
            raise ConfigError(f"{path}: {name} has numbers that are not finite")
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(arrays[name]) for name in expected])


def _kind(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype}[{', '.join(map(str, shape[:8]))}{', ...' if len(shape) > 8 else ''}]"


def _header(file: BinaryIO, size: int, path: Path) -> dict[str, Place]:
    """The arrays that a safetensors file of ``size`` bytes holds, one after the other, up to its end; by their names.

    Leaves ``file`` where the data begin. Raises `ConfigError` for any other file.
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise ConfigError(f"{path}: no safetensors file, or cut off")
    try:
        header = json_files.parse(file.read(length))
    except ConfigError as error:
        raise ConfigError(f"{path}: no safetensors file ({error})") from None
    entries = header if isinstance(header, dict) else {"": None}
    found, end = {name: _place(entry) for name, entry in entries.items()}, 0
    for place in sorted((place for place in found.values() if place), key=lambda place: (place.begin, place.end)):
        end = place.end if place.begin == end else -1
    if None in found.values() or end != size - 8 - length:
        raise ConfigError(f"{path}: its header does not describe its {size} bytes")
    return {name: place for name, place in found.items() if place}


def _place(entry: Any) -> Place | None:
    """An entry of a header, or None if it is none."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return None
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    names = [name for name, code in DTYPES.items() if code == dtype]
    if not names or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        return None
    size = math.prod(shape) * jax.numpy.dtype(names[0]).itemsize
    return Place(tuple(shape), dtype, *offsets) if offsets[1] - offsets[0] == size else None


def _are_sizes(value: Any) -> bool:
    """Whether ``value`` is a list of at most `MOST_AXES` whole numbers of 0 or more."""
    return isinstance(value, list) and len(value) <= MOST_AXES and all(type(x) is int and x >= 0 for x in value)


def _digest(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over a JSON document and the name, dtype, shape and bytes of every array, as hexadecimal digits."""
    digest = hashlib.sha256(json_files.canonical(document))
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
