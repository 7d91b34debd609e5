"""Untrusted safetensors files: their header is compared with what is expected before arrays are allocated."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from purerl.errors import ConfigError
from purerl.store import json_files
from purerl.store.arrays import DTYPES

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


def header(file: BinaryIO, size: int, path: Path) -> Header:
    """Reads the header of a safetensors file of ``size`` bytes, whose arrays lie one after the other up to its end.

    It leaves ``file`` where the data begin.

    Raises:
        ConfigError: The file is any other.
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise ConfigError(f"{path}: not a safetensors file, or truncated")
    try:
        document_read = json_files.parse(file.read(length))
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


def read(file: BinaryIO, path: Path, places: dict[str, Place], like: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Reads the arrays of a file whose `header` was read.

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
    hashed = hashlib.sha256(json_files.canonical(document))
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
