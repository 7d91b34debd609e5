"""Metrics as JSON lines."""

import json
from collections.abc import Iterator

import numpy as np

from purerl.formulas import aggregates
from purerl.store.json_files import finite

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles over a population that `quantile_rows` writes."""


def rows(
    metrics: dict[str, np.ndarray], env_steps: list[int], first_iteration: int, labels: list[dict[str, int]]
) -> Iterator[str]:
    """Metrics ``[iterations, P]`` as JSON lines, one for each iteration and member.

    ``env_steps`` ``[iterations]`` is the number of environment steps of one member after each iteration;
    ``first_iteration`` is the number of the first row, counted from 1; ``labels`` ``[P]`` are added to each member's
    lines.
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
    """Metrics ``[iterations, P]`` summarised as JSON lines, one for each iteration.

    A line has the number of members alive and the `QUANTILES` of ``episode_return`` over members in which an episode
    ended. ``env_steps`` and ``first_iteration`` are as for `rows`; ``first_member`` identifies the batch of members.
    """
    alive, quantiles = metrics["alive"].sum(axis=1).tolist(), aggregates.quantiles(metrics["episode_return"], QUANTILES)
    for i, frames in enumerate(env_steps):
        row = {"iteration": first_iteration + i, "first_member": first_member, "env_steps": frames, "alive": alive[i]}
        row["episode_return"] = {f"{q:g}": value for q, value in zip(QUANTILES, quantiles[:, i].tolist(), strict=True)}
        yield json.dumps(finite(row), allow_nan=False) + "\n"
