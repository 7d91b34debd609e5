"""Checkpoints: the whole state of a run as one atomic Orbax step, with a card that describes it.

A directory holds one step for each save, named by its number. The card holds a format version, a description by the
caller (``about``), the versions of the libraries, the name, shape and dtype of every leaf, and a SHA-256 digest of the
contents. A step that does not match its digest is reported as damaged.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from purerl.errors import ConfigError
from purerl.types import PyTree

FORMAT = 1
"""Format version of a step; steps of other versions are refused."""
KEEP = 2
"""Number of steps that are kept: the newest, and one to fall back to."""
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "evosax", "orbax-checkpoint")
LOCK = "run.lock"


class Restored(NamedTuple):
    """A saved state, its step, the caller's description, and the newer steps that were skipped as damaged."""

    state: PyTree
    step: int
    about: dict[str, Any]
    damaged: tuple[int, ...] = ()


class Damaged(ConfigError):
    """A step that cannot be read, or whose contents differ from what was written. The message names it."""


def save(directory: Path, step: int, state: PyTree, about: dict[str, Any]) -> None:
    """Writes ``state`` as the step ``directory/step``, atomically, and removes all but the newest `KEEP` steps.

    ``state`` is a tree of arrays and typed keys. ``about`` is JSON; counts that exceed an int32 belong there. Raises
    `FileExistsError` if the step exists, and another `OSError` if it cannot be written; earlier steps stay unchanged.
    """
    arrays = _arrays(state)
    card = {
        "format": FORMAT,
        "about": about,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "leaves": _describe(arrays),
        "sha256": _digest(arrays, about),
    }
    numbered = {str(i): array for i, array in enumerate(arrays.values()) if array.size}
    parts = ocp.args.Composite(state=ocp.args.StandardSave(numbered), card=ocp.args.JsonSave(card))
    path = (directory / str(step)).absolute()
    if path.exists():
        raise FileExistsError(f"{path}: exists")
    try:
        with _checkpointer() as checkpointer:
            checkpointer.save(path, args=parts)
    except ValueError as error:  # what Orbax raises if the disk is full
        raise OSError(f"{path}: cannot be written ({_reason(error)})") from None
    for old in steps(directory)[:-KEEP]:
        shutil.rmtree(directory / str(old))


def steps(directory: Path) -> list[int]:
    """The numbers of the steps in a directory, ascending; empty if there is no such directory."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return sorted(int(path.name) for path in entries if path.name.isdecimal() and path.is_dir())


def restore(directory: Path, like: PyTree, *, strict: bool = False) -> Restored:
    """The newest step of ``directory``, in the structure of ``like``, a tree of arrays or of `jax.ShapeDtypeStruct`.

    If it is damaged, the step before it is read, with a `RuntimeWarning`, unless ``strict``. Raises `Damaged` if no
    step can be read (with ``strict``: if the newest cannot), and `ConfigError` if there is no step, if its format
    differs, or if its leaves differ from ``like`` in name, shape or dtype.
    """
    existing = steps(directory)
    if not existing:
        raise ConfigError(f"{directory}: holds no checkpoint")
    damaged: dict[int, str] = {}
    for step in reversed(existing):
        try:
            arrays, about = _read(directory / str(step))
        except Damaged as error:
            damaged[step] = str(error)
            if strict:
                break
            continue
        if damaged:
            warnings.warn("; ".join(damaged.values()) + f"; going on from step {step}", RuntimeWarning, stacklevel=2)
        return Restored(_fill(like, arrays, directory / str(step)), step, about, tuple(damaged))
    raise Damaged("\n".join(damaged.values()))


def put_aside(directory: Path, damaged: Sequence[int]) -> None:
    """Renames damaged steps, so that later steps can be saved under their numbers."""
    for step in damaged:
        os.replace(directory / str(step), directory / f"{step}.damaged-{time.time_ns()}")


def clear(directory: Path) -> None:
    """Removes the temporary files of interrupted saves. Hold the `lock`, so that no other process is saving."""
    for path in directory.glob("*.orbax-checkpoint-tmp*"):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """An exclusive lock on a run directory, which the operating system releases when the process ends, even if killed.

    Raises `ConfigError`, with the id of the process that holds it, if it is taken.
    """
    with open(directory / LOCK, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ConfigError(f"{directory}: in use by process {file.read().strip() or 'unknown'}") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _checkpointer() -> ocp.Checkpointer:
    return ocp.Checkpointer(ocp.CompositeCheckpointHandler())


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The leaves by name, and the caller's description, of one step.

    Raises `Damaged` if it cannot be read, and `ConfigError` if its format differs.
    """
    parts = ocp.args.Composite(state=ocp.args.StandardRestore(), card=ocp.args.JsonRestore())
    try:
        with _checkpointer() as checkpointer:
            read = checkpointer.restore(path.absolute(), args=parts)
        card, numbered = read["card"], read["state"]
        version = card["format"]
        arrays = {leaf["name"]: _leaf(numbered.get(str(i)), leaf) for i, leaf in enumerate(card["leaves"])}
        sound = _describe(arrays) == card["leaves"] and _digest(arrays, card["about"]) == card["sha256"]
    except Exception as error:  # a damaged step can raise errors of any type
        raise Damaged(f"{path}: cannot be read ({_reason(error)})") from None
    if version != FORMAT:
        raise ConfigError(f"{path}: format {version!r}, expected {FORMAT}")
    if not sound:
        raise Damaged(f"{path}: its contents are not what was written (sha256 differs)")
    return arrays, card["about"]


def _reason(error: Exception) -> str:
    """The first line of an error's message, or the name of its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _leaf(array: Any, description: dict[str, Any]) -> np.ndarray:
    """A stored leaf as a numpy array. Arrays without elements are not stored, but made from their description."""
    return np.zeros(description["shape"], description["dtype"]) if array is None else np.asarray(array)


def _arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Leaves by name, as numpy arrays; typed keys as their uint32 words."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(_plain(leaf)) for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of typed random keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    """A leaf; if it is a typed key, its uint32 words."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _describe(arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Name, shape and dtype of every array, as JSON."""
    return [{"name": name, "shape": list(x.shape), "dtype": x.dtype.name} for name, x in arrays.items()]


def _digest(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    """SHA-256 over ``about`` and the name, shape, dtype and bytes of every leaf, as hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for description, array in zip(_describe(arrays), arrays.values(), strict=True):
        digest.update(json.dumps(description, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _fill(like: PyTree, arrays: dict[str, np.ndarray], path: Path) -> PyTree:
    """``arrays`` in the structure of ``like``. Raises `ConfigError`, naming the first leaf that does not match."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    shapes = {jax.tree_util.keystr(at): jax.eval_shape(_plain, leaf) for at, leaf in leaves}
    expected = {name: (shape.shape, shape.dtype.name) for name, shape in shapes.items()}
    stored = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name in [*expected, *stored]:
        if expected.get(name) != stored.get(name):
            raise ConfigError(
                f"{path}: {name} is {stored.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
            )
    filled = [
        jax.random.wrap_key_data(x) if _is_key(leaf) else x
        for x, (_, leaf) in zip((jax.numpy.asarray(arrays[name]) for name in shapes), leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, filled)
