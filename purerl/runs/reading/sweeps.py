"""Configurations of a sweep, ranked."""

from pathlib import Path
from typing import Any

import numpy as np

from purerl.display.tables import print_ranking
from purerl.formulas import aggregates
from purerl.runs.describing.description import Setup
from purerl.store import json_files


def rank(setup: Setup, scores: np.ndarray) -> dict[str, Any]:
    """Configurations of a sweep, the best first, by the interquartile mean of their seeds' scores.

    ``scores`` has an entry for each member, nan for those that died, which count as the worst.
    """
    count = len(next(iter(setup.swept.values())))
    scores = scores.reshape(count, -1)
    rows = []
    for c in range(count):
        values = {name: values[c] for name, values in setup.swept.items()}
        estimate = aggregates.told(scores[c])
        rows.append({**values, "config": c, **estimate._asdict(), "returns": scores[c].tolist()})
    key = lambda row: (row["value"], np.sum(np.nan_to_num(row["returns"], nan=-1e30)))
    return {"swept": setup.swept, "ranked": sorted(rows, key=key, reverse=True)}


def write_sweep(directory: Path, ranking: dict[str, Any]) -> None:
    """Writes ``sweep.json`` and ``sweep.png`` into a run directory, and prints the table."""
    from purerl.display import plots

    json_files.write_json(directory / "sweep.json", ranking)
    in_order = sorted(ranking["ranked"], key=lambda row: row["config"])
    plots.sweep_map(directory / "sweep.png", ranking["swept"], [row["returns"] for row in in_order])
    print_ranking(ranking)
