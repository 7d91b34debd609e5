"""Files of a run directory: JSON, JSON lines, and a policy as safetensors beside its description. No pickle."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.store.json_files import write_json
from purerl.trees import named_leaves
from purerl.types import PyTree

FORMAT = 2
"""Version of the policy files."""


def save_policy(directory: Path, policy: PyTree, description: dict[str, Any]) -> None:
    """Writes ``policy.safetensors`` and ``policy.json``, with ``description`` and every array's shape and type."""
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(policy).items()}
    temporary = directory / "policy.safetensors.tmp"
    safetensors.numpy.save_file(arrays, temporary)
    os.replace(temporary, directory / "policy.safetensors")
    shapes = {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}
    write_json(directory / "policy.json", {"format": FORMAT, **description, "arrays": shapes})


def load_policy(directory: Path, like: PyTree) -> PyTree:
    """Reads the arrays of `save_policy` into the structure of ``like``, a tree of arrays or of `jax.ShapeDtypeStruct`.

    Raises `ConfigError` for a missing, damaged or differently shaped file.
    """
    path = directory / "policy.safetensors"
    try:
        arrays = safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{path}: cannot read the policy ({error})") from None
    expected = {name: (tuple(leaf.shape), leaf.dtype.name) for name, leaf in named_leaves(like).items()}
    found = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise ConfigError(
                f"{path}: {name} is {found.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(arrays[name]) for name in expected])
