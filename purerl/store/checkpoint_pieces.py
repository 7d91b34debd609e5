"""The arrays of a checkpoint that several processes write: each writes a piece, its part of the state.

A piece is a safetensors file. It has a part of an array as ``NAME@START,START,...``, by the indices along all axes at
which the part begins. Beside it is a note with its size and its SHA-256 digest, whose presence means that the piece is
whole.
"""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from purerl.errors import ConfigError
from purerl.store import guards, tensors
from purerl.store.writing import atomic
from purerl.types import PyTree

WAIT_SECONDS = 300.0
"""The time that one process waits for the pieces of the others, in seconds."""
LOOK_SECONDS = 0.05
BLOCK = 2**20
"""The number of bytes that are read at once to compute a digest."""


class Part(NamedTuple):
    """A part of an array in a file.

    ``starts`` are the indices at which the part begins along all axes, ``place`` is its place in the file's data, and
    ``offset`` is the byte at which the data begin.
    """

    starts: tuple[int, ...]
    place: tensors.Place
    file: BinaryIO
    offset: int


def of_process(shard: Any) -> bool:
    """Returns whether this process, on one of whose devices a shard lies, is the one that writes it."""
    return shard.replica_id == 0


def own(tree: PyTree, rows: int | None = None, mine: Callable[[Any], bool] = of_process) -> dict[str, Any]:
    """Returns the parts of a tree of arrays and typed keys that this process writes, by name and place.

    No two processes write the same part, and together they write all.

    Args:
        tree: A tree of arrays and typed keys.
        rows: The number of rows of the leading axis of every array that are written; None: all.
        mine: ``mine(shard)`` returns whether this process writes a shard.
    """
    parts = {}
    for name, leaf in tensors.named(tree).items():
        for shard in leaf.addressable_shards if isinstance(leaf, jax.Array) else ():
            starts = [part.start or 0 for part in shard.index]
            part = shard.data if rows is None or not starts else shard.data[: max(0, rows - starts[0])]
            if mine(shard) and part.size:
                parts[f"{name}@{','.join(map(str, starts))}"] = part
    return parts


def write(folder: Path, process: int, parts: Mapping[str, Any]) -> None:
    """Writes the piece of a process, flushes it to the disk, and then writes its note. Raises `OSError`."""
    digest, size = hashlib.sha256(), 0
    with open(folder / _name(process), "wb") as file:
        for block in tensors.file_of(parts):
            file.write(block)
            digest.update(block)
            size += len(block)
        file.flush()
        os.fsync(file.fileno())
    with atomic(_note(folder, process)) as temporary, open(temporary, "w") as note:
        json.dump({"file": _name(process), "bytes": size, "sha256": digest.hexdigest()}, note)


def gather(folder: Path, count: int, seconds: float = WAIT_SECONDS) -> list[dict[str, Any]]:
    """Waits for the pieces of ``count`` processes, and returns their notes, which are removed.

    Raises:
        OSError: A piece does not come within ``seconds``, or is not as long as its note says.
    """
    received, until = [], time.monotonic() + seconds
    for process in range(count):
        note = _note(folder, process)
        while not note.exists():
            if time.monotonic() > until:
                raise OSError(f"process {process} has not written its part within {seconds:g} seconds")
            time.sleep(LOOK_SECONDS)
        note_read = guards.read_json(note)
        if (there := os.stat(folder / _name(process)).st_size) != note_read["bytes"]:
            raise OSError(f"the part of process {process} has {there} bytes, not {note_read['bytes']}")
        received.append(note_read)
    for process in range(count):
        _note(folder, process).unlink()
    return received


def problem(folder: Path, listed: Any) -> str | None:
    """Returns what is wrong with the pieces that a card has ``listed``; None if they are what was written."""
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed) or not listed:
        return "lists no pieces"
    for process, each in enumerate(listed):
        if each.get("file") != _name(process):
            return f"does not list the piece {process}"
        try:
            with guards.opened(folder / _name(process))[0] as file:
                size, digest = os.fstat(file.fileno()).st_size, hashlib.sha256()
                if size != each.get("bytes"):
                    return f"{_name(process)} has {size} bytes, not {str(each.get('bytes'))[:20]}"
                while block := file.read(BLOCK):
                    digest.update(block)
        except (ConfigError, OSError) as error:
            return f"{_name(process)} cannot be read ({error})"
        if digest.hexdigest() != each.get("sha256"):
            return f"{_name(process)} was changed after it was written (sha256 differs)"
    return None


def read(folder: Path, count: int, like: PyTree, put: tensors.Put = tensors.on_default) -> PyTree:
    """Reads the arrays of ``count`` pieces in the structure of ``like``, array after array.

    Arguments and errors are those of `tensors.read`.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    shapes = {jax.tree_util.keystr(at): jax.eval_shape(tensors.plain, leaf) for at, leaf in leaves}
    with contextlib.ExitStack() as stack:
        parts: dict[str, list[Part]] = {}
        for name, part in _parts(folder, count, stack):
            parts.setdefault(name, []).append(part)
        for name in [*shapes, *parts]:
            _check(folder, name, parts.get(name, []), shapes.get(name))
        whole = [
            tensors.placed(_joined(folder, parts.get(name, []), shape), leaf, put)
            for (_, leaf), (name, shape) in zip(leaves, shapes.items(), strict=True)
        ]
    return jax.tree.unflatten(structure, whole)


def _parts(folder: Path, count: int, stack: contextlib.ExitStack) -> Iterator[tuple[str, Part]]:
    """Yields the parts of all arrays in the pieces, by the arrays' names; ``stack`` closes the files."""
    for process in range(count):
        path = folder / _name(process)
        opened, size = guards.opened(path)
        file: Any = stack.enter_context(opened)
        header = tensors.read_header(file, size, path)
        offset = file.tell()
        for name, place in header.places.items():
            whole, _, starts = name.rpartition("@")
            numbers = starts.split(",") if starts else []
            if len(numbers) != len(place.shape) or not all(x.isascii() and x.isdecimal() for x in numbers):
                raise ConfigError(f"{path}: {name[:80]!r} is no part of an array")
            yield whole, Part(tuple(map(int, numbers)), place, file, offset)


def _check(folder: Path, name: str, parts: Sequence[Part], shape: Any) -> None:
    """Raises `ConfigError` unless these parts make up the whole array of the shape and dtype of ``shape``, once."""
    if shape is None:
        raise ConfigError(f"{folder}: {name} is {len(parts)} parts, expected nothing")
    ends = [tuple(a + b for a, b in zip(part.starts, part.place.shape, strict=True)) for part in parts]
    extent = tuple(map(max, zip(*ends, strict=True))) if parts and len({*map(len, ends)}) == 1 else None
    kinds = {part.place.dtype for part in parts}
    sizes, different = sum(math.prod(part.place.shape) for part in parts), {part.starts for part in parts}
    whole = extent == shape.shape or (not parts and math.prod(shape.shape) == 0)
    if not whole or kinds - {tensors.DTYPES[shape.dtype.name]} or len(different) < len(parts):
        stored = (extent, *sorted(kinds)) if parts else "missing"
        raise ConfigError(f"{folder}: {name} is {stored}, expected {(shape.shape, tensors.DTYPES[shape.dtype.name])}")
    if sizes != math.prod(shape.shape):
        raise ConfigError(f"{folder}: {name} has {sizes} numbers in its parts, expected {math.prod(shape.shape)}")


def _joined(folder: Path, parts: Sequence[Part], shape: Any) -> np.ndarray:
    """Joins parts to the array of the shape and dtype of ``shape``."""
    array = np.empty(shape.shape, shape.dtype)
    for part in parts:
        place: Any = (*(slice(a, a + b) for a, b in zip(part.starts, part.place.shape, strict=True)), ...)
        whole = part.place.shape[1:] == array.shape[1:]  # split along the leading axis only: read in place
        into = array[place] if whole else np.empty(part.place.shape, shape.dtype)
        part.file.seek(part.offset + part.place.begin)
        tensors.fill(part.file, into, folder)
        if not whole:
            array[place] = into
    return array


def _name(process: int) -> str:
    return f"state-{process}.safetensors"


def _note(folder: Path, process: int) -> Path:
    return folder / f"piece-{process}.json"
