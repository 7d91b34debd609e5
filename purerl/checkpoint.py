"""Files of a run directory: JSON, JSON lines, and a policy as safetensors beside its description. No pickle."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from purerl.config import ConfigError
from purerl.types import PyTree

FORMAT = 1
"""Version of the policy files."""


def write_json(path: Path, value: Any) -> None:
    """Writes whole or not at all. Numbers that JSON lacks (nan, inf) become null."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(finite(value), indent=2, allow_nan=False) + "\n")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Raises `ConfigError` if the file is missing or is not JSON."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a JSON file ({error})") from None


def finite(value: Any) -> Any:
    """``value`` with Python numbers for numpy's, and None for every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return finite(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rows(metrics: dict[str, np.ndarray], first_iteration: int, env_steps: int, seeds: list[int]) -> Iterator[str]:
    """JSON lines of metrics ``[iterations, S]``, a row for each iteration and seed.

    ``first_iteration`` counts from 1; ``env_steps`` is the frames of one iteration of one seed.
    """
    columns = {name: array.tolist() for name, array in metrics.items()}
    for i in range(len(next(iter(columns.values())))):
        iteration = first_iteration + i
        for s, seed in enumerate(seeds):
            row = {"iteration": iteration, "seed": seed, "env_steps": iteration * env_steps}
            row.update((name, column[i][s]) for name, column in columns.items())
            yield json.dumps(finite(row), allow_nan=False) + "\n"


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def save_policy(directory: Path, policy: PyTree, description: dict[str, Any]) -> None:
    """Writes ``policy.safetensors`` and ``policy.json``, with ``description`` and every array's shape and type."""
    arrays = {name: np.asarray(leaf) for name, leaf in _named_leaves(policy).items()}
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
    expected = {name: (tuple(leaf.shape), leaf.dtype.name) for name, leaf in _named_leaves(like).items()}
    found = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise ConfigError(
                f"{path}: {name} is {found.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(arrays[name]) for name in expected])
