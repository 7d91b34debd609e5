"""Saved policies and critics: arrays as safetensors files, each with a JSON description and a digest. No pickle."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy

from purerl import trees
from purerl.errors import ConfigError
from purerl.store import guards, tensors, writing
from purerl.store.writing import atomic
from purerl.types import PyTree

FORMAT = 3
"""The format version of the files, written to the description; other versions are refused."""
DESCRIPTION, ARRAYS = "policy.json", "policy.safetensors"


class Files(NamedTuple):
    """The names of two files: a description, and the arrays that it describes."""

    description: str
    arrays: str


POLICY = Files(DESCRIPTION, ARRAYS)
CRITICS = Files("critics.json", "critics.safetensors")
OF, NAMES = "policy_sha256", "names"
"""The entries in the description of critics for the digest of their policies, and for their names."""


def save_policy(directory: Path, policy: PyTree, description: dict[str, Any]) -> None:
    """Writes ``policy.safetensors`` and ``policy.json`` to ``directory``, each atomically.

    ``policy.json`` holds the format, ``description``, the shape and dtype of every array, and a SHA-256 over all of it
    and the arrays.
    """
    _save(directory, POLICY, policy, description)


def save_critics(directory: Path, critics: dict[str, PyTree]) -> None:
    """Writes the critics of the policies that ``directory`` holds beside them, as `save_policy` writes policies.

    Their description has the digest of the policies, so that they are not taken for those of others.
    """
    _save(directory, CRITICS, critics, {OF: load_description(directory)[tensors.SEAL], NAMES: list(critics)})


def _save(directory: Path, files: Files, tree: PyTree, description: dict[str, Any]) -> None:
    arrays = {name: np.asarray(leaf) for name, leaf in trees.named_leaves(tree).items()}
    with atomic(directory / files.arrays) as temporary:
        temporary.write_bytes(safetensors.numpy.save(arrays))
    shapes = {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}
    document = json.loads(json.dumps(writing.finite({"format": FORMAT, **description, "arrays": shapes})))
    writing.write_json(directory / files.description, {**document, tensors.SEAL: tensors.digest(document, arrays)})


def load_description(directory: Path) -> dict[str, Any]:
    """Reads ``policy.json``.

    Nothing but its format is checked: its digest also covers the arrays, so `load_policy`, which knows their shapes,
    verifies it.

    Raises:
        ConfigError: The file is no JSON object, or has another format; or a training that has not ended has none yet.
    """
    path = directory / DESCRIPTION
    if not path.exists() and (directory / "config.json").exists():
        raise ConfigError(
            f"{directory}: is unfinished: no policy is saved before a training ends or is interrupted; if it no longer "
            "runs, go on with it by purerl resume"
        )
    return _described(path)


def _described(path: Path) -> dict[str, Any]:
    document = guards.read_json(path)
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

    ``document`` is the result of `load_description`. Nothing is allocated before the file's header agrees with ``like``
    and with the file's size.

    Raises:
        ConfigError: The file is missing, its arrays differ in name, shape or dtype, something in it or in ``document``
            was changed after it was written, or numbers are not finite.
    """
    return _load(directory, POLICY, document, like)


def load_critics(directory: Path, like: dict[str, PyTree]) -> dict[str, PyTree]:
    """Reads what `save_critics` wrote; ``{}`` if there are no such files.

    ``like`` has the shapes of all critics that there can be, by name.

    Raises:
        ConfigError: As for `load_policy`; or they are not the critics of the policies beside them.
    """
    path = directory / CRITICS.description
    if not path.exists():
        return {}
    document = _described(path)
    if document.get(OF) != load_description(directory).get(tensors.SEAL):
        raise ConfigError(f"{path}: has critics of other policies than {DESCRIPTION} beside it")
    names = guards.listed(document, NAMES)
    critics: dict[str, PyTree] = _load(
        directory, CRITICS, document, {name: x for name, x in like.items() if name in names}
    )
    return critics


def _load(directory: Path, files: Files, document: dict[str, Any], like: PyTree) -> PyTree:
    path, expected = directory / files.arrays, trees.named_leaves(like)
    with tensors.opened(path) as file:
        if file.metadata():  # which the digest does not cover
            raise ConfigError(f"{path}: must not have metadata")
        arrays = tensors.read_all(path, file, expected)
    tensors.check_digest(path, document, arrays, f"it or {files.description} ")
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(arrays[name]) for name in expected])
