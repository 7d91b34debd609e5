"""Saved policies: arrays as a safetensors file, with a JSON description and a digest beside it. No pickle."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from purerl import trees
from purerl.errors import ConfigError
from purerl.store import guards, tensors, writing
from purerl.store.writing import atomic
from purerl.types import PyTree

FORMAT = 3
"""The format version of the policy files, written to ``policy.json``; other versions are refused."""
DESCRIPTION, ARRAYS = "policy.json", "policy.safetensors"


def save_policy(directory: Path, policy: PyTree, description: dict[str, Any]) -> None:
    """Writes ``policy.safetensors`` and ``policy.json`` to ``directory``, each atomically.

    ``policy.json`` holds the format, ``description``, the shape and dtype of every array, and a SHA-256 over all of it
    and the arrays.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in trees.named_leaves(policy).items()}
    with atomic(directory / ARRAYS) as temporary:
        temporary.write_bytes(safetensors.numpy.save(arrays))
    shapes = {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}
    document = json.loads(json.dumps(writing.finite({"format": FORMAT, **description, "arrays": shapes})))
    writing.write_json(directory / DESCRIPTION, {**document, tensors.SEAL: tensors.digest(document, arrays)})


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
    path, expected = directory / ARRAYS, trees.named_leaves(like)
    with tensors.opened(path) as file:
        if file.metadata():  # which the digest does not cover
            raise ConfigError(f"{path}: must not have metadata")
        arrays = tensors.read_all(path, file, expected)
    tensors.check_digest(path, document, arrays, f"it or {DESCRIPTION} ")
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(arrays[name]) for name in expected])
