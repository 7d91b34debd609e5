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

from purerl import statistics
from purerl.config import ConfigError
from purerl.types import PyTree

FORMAT = 2
"""Version of the policy files."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Those of a population that are logged."""


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


def rows(
    metrics: dict[str, np.ndarray], env_steps: list[int], first_iteration: int, labels: list[dict[str, int]]
) -> Iterator[str]:
    """JSON lines of metrics ``[iterations, P]``, a row for each iteration and member.

    ``env_steps`` are one member's frames after each iteration, ``first_iteration`` counts from 1, and ``labels`` name
    the members.
    """
    columns = {name: array.tolist() for name, array in metrics.items()}
    for i, frames in enumerate(env_steps):
        for m, label in enumerate(labels):
            row = {"iteration": first_iteration + i, **label, "env_steps": frames}
            row.update((name, column[i][m]) for name, column in columns.items())
            yield json.dumps(finite(row), allow_nan=False) + "\n"


def quantile_rows(
    metrics: dict[str, np.ndarray], env_steps: list[int], first_iteration: int, first_member: int
) -> Iterator[str]:
    """JSON lines, a row for each iteration: the members alive, and quantiles of ``episode_return`` over all members.

    ``first_member`` tells batches apart. Members in which no episode ended count for nothing.
    """
    alive, found = metrics["alive"].sum(axis=1).tolist(), statistics.quantiles(metrics["episode_return"], QUANTILES)
    for i, frames in enumerate(env_steps):
        row = {"iteration": first_iteration + i, "first_member": first_member, "env_steps": frames, "alive": alive[i]}
        row["episode_return"] = {f"{q:g}": value for q, value in zip(QUANTILES, found[:, i].tolist(), strict=True)}
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
