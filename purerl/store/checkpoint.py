"""Checkpoints: the whole state of a run in one atomic Orbax step, with a card inside that tells what it is.

A directory holds a step for each save, named by its number. The card has a format version, what the caller says of the
run, the versions of the libraries, and a digest over every leaf: what is read is what was written, or an error.
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
"""Version of the steps; another one is refused."""
KEEP = 2
"""Steps that are kept: the newest, and one to fall back to."""
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "evosax", "orbax-checkpoint")
LOCK = "run.lock"


class Restored(NamedTuple):
    """A state as it was saved, its step, what the caller had to say of it, and the later steps that are damaged."""

    state: PyTree
    step: int
    about: dict[str, Any]
    damaged: tuple[int, ...] = ()


class Damaged(ConfigError):
    """A step that cannot be read back as it was written. The text names it."""


def save(directory: Path, step: int, state: PyTree, about: dict[str, Any]) -> None:
    """Writes ``state`` as the step ``directory/step``, whole or not at all, and removes all but the newest `KEEP`.

    ``state`` is a tree of arrays and typed keys; ``about`` is JSON: counts that outgrow an int32 belong there. Raises
    `FileExistsError` if the step exists, and another `OSError` if it cannot be written; earlier steps stay as they are.
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
    except ValueError as error:  # Orbax's word for a full disk
        raise OSError(f"{path}: cannot be written ({_reason(error)})") from None
    for old in steps(directory)[:-KEEP]:
        shutil.rmtree(directory / str(old))


def steps(directory: Path) -> list[int]:
    """The steps in a directory, oldest first; none if there is no such directory."""
    found = directory.iterdir() if directory.is_dir() else ()
    return sorted(int(path.name) for path in found if path.name.isdecimal() and path.is_dir())


def restore(directory: Path, like: PyTree, *, strict: bool = False) -> Restored:
    """The newest step of ``directory``, in the structure of ``like``, a tree of arrays or of `jax.ShapeDtypeStruct`.

    If that one is damaged, the one before is read and a warning says so; ``strict`` refuses instead. Raises `Damaged`
    if none can be read, and `ConfigError` if there is none, or if it is of another format or shape than ``like``.
    """
    found = steps(directory)
    if not found:
        raise ConfigError(f"{directory}: holds no checkpoint")
    damaged: dict[int, str] = {}
    for step in reversed(found):
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
    """Renames steps that could not be read, so that they are in the way of no later one."""
    for step in damaged:
        os.replace(directory / str(step), directory / f"{step}.damaged-{time.time_ns()}")


def clear(directory: Path) -> None:
    """Removes what an interrupted save left behind. No other process may be saving: hold the `lock`."""
    for path in directory.glob("*.orbax-checkpoint-tmp*"):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Keeps other processes out of a run directory. A process that was killed leaves no obstacle.

    Raises `ConfigError` with the number of the process that holds it.
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
    """Leaves by name, and the caller's words, of one step. Raises `Damaged`, or `ConfigError` for another format."""
    parts = ocp.args.Composite(state=ocp.args.StandardRestore(), card=ocp.args.JsonRestore())
    try:
        with _checkpointer() as checkpointer:
            read = checkpointer.restore(path.absolute(), args=parts)
        card, numbered = read["card"], read["state"]
        found = card["format"]
        arrays = {leaf["name"]: _leaf(numbered.get(str(i)), leaf) for i, leaf in enumerate(card["leaves"])}
        sound = _describe(arrays) == card["leaves"] and _digest(arrays, card["about"]) == card["sha256"]
    except Exception as error:  # a damaged step ends in errors of any type
        raise Damaged(f"{path}: cannot be read ({_reason(error)})") from None
    if found != FORMAT:
        raise ConfigError(f"{path}: format {found!r}, expected {FORMAT}")
    if not sound:
        raise Damaged(f"{path}: its contents are not what was written (sha256 differs)")
    return arrays, card["about"]


def _reason(error: Exception) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _leaf(array: Any, description: dict[str, Any]) -> np.ndarray:
    """Arrays without elements are not written."""
    return np.zeros(description["shape"], description["dtype"]) if array is None else np.asarray(array)


def _arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Leaves by name; keys as the words they hold."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(_plain(leaf)) for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _describe(arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    return [{"name": name, "shape": list(x.shape), "dtype": x.dtype.name} for name, x in arrays.items()]


def _digest(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    """Over the caller's words and every leaf's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for description, array in zip(_describe(arrays), arrays.values(), strict=True):
        digest.update(json.dumps(description, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _fill(like: PyTree, arrays: dict[str, np.ndarray], path: Path) -> PyTree:
    """The structure of ``like`` with ``arrays`` in it. Raises `ConfigError` that names the first leaf that differs."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    shapes = {jax.tree_util.keystr(at): jax.eval_shape(_plain, leaf) for at, leaf in leaves}
    expected = {name: (shape.shape, shape.dtype.name) for name, shape in shapes.items()}
    found = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            raise ConfigError(
                f"{path}: {name} is {found.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
            )
    filled = [
        jax.random.wrap_key_data(arrays[name]) if _is_key(leaf) else jax.numpy.asarray(arrays[name])
        for name, (_, leaf) in zip(shapes, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, filled)
