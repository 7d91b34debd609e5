"""Saved policies: arrays as a safetensors file, with a JSON description beside it. No pickle."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.store.atomic import atomic
from purerl.store.json_files import write_json
from purerl.trees import named_leaves
from purerl.types import PyTree

FORMAT = 2
"""Format version of the policy files, written to ``policy.json``."""


def save_policy(directory: Path, policy: PyTree, description: dict[str, Any]) -> None:
    """Writes ``policy.safetensors`` and ``policy.json`` to ``directory``, each atomically.

    ``policy.json`` holds the format, ``description``, and the shape and dtype of every array.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(policy).items()}
    with atomic(directory / "policy.safetensors") as temporary:
        temporary.write_bytes(safetensors.numpy.save(arrays))
    shapes = {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}
    write_json(directory / "policy.json", {"format": FORMAT, **description, "arrays": shapes})


def load_policy(directory: Path, like: PyTree) -> PyTree:
    """Reads the arrays of `save_policy` into the structure of ``like``, a tree of arrays or of `jax.ShapeDtypeStruct`.

    Raises `ConfigError` if the file is missing or damaged, or if its arrays differ in name, shape or dtype.
    """
    path = directory / "policy.safetensors"
    try:
        arrays = safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{path}: cannot read the policy ({error})") from None
    expected = {name: (tuple(leaf.shape), leaf.dtype.name) for name, leaf in named_leaves(like).items()}
    stored = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name in sorted(expected.keys() | stored.keys()):
        if expected.get(name) != stored.get(name):
            raise ConfigError(
                f"{path}: {name} is {stored.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(arrays[name]) for name in expected])
