"""Metrics as JSON lines."""

import json
from collections.abc import Iterator

import numpy as np

from purerl.formulas import aggregates
from purerl.store.json_files import finite

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Those of a population that are logged."""


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
    alive, found = metrics["alive"].sum(axis=1).tolist(), aggregates.quantiles(metrics["episode_return"], QUANTILES)
    for i, frames in enumerate(env_steps):
        row = {"iteration": first_iteration + i, "first_member": first_member, "env_steps": frames, "alive": alive[i]}
        row["episode_return"] = {f"{q:g}": value for q, value in zip(QUANTILES, found[:, i].tolist(), strict=True)}
        yield json.dumps(finite(row), allow_nan=False) + "\n"
