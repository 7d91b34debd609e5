"""The ranking of a sweep's configurations."""

from pathlib import Path
from typing import Any

import numpy as np

from purerl.display.progress import picturing
from purerl.display.tables import print_ranking
from purerl.formulas import aggregates
from purerl.runs.describing import config_file
from purerl.runs.describing.sweep_names import MOST_PROGRAMS
from purerl.store import json_files, policies, untrusted_json


def parts(directory: Path) -> list[Path]:
    """Returns the directories of the runs of a sweep over several programs; empty for any other run.

    Each of them is a folder of the sweep's directory.
    """
    if (directory / policies.DESCRIPTION).exists():
        return []
    programs = untrusted_json.contents(directory, config_file.NAME).get("programs")
    first = next(iter(programs.values()), None) if isinstance(programs, dict) else None
    return [directory / str(k) for k in range(min(len(first), MOST_PROGRAMS))] if isinstance(first, list) else []


def rank(swept: dict[str, list[Any]], scores: np.ndarray, programs: int = 0) -> dict[str, Any]:
    """Ranks the configurations of a sweep, the best first, by the interquartile mean of their seeds' scores.

    Args:
        swept: By the name of the setting a value for each configuration.
        scores: An entry for each member, nan for those that diverged, which count as the worst.
        programs: The number of programs of a sweep over several. Each row then names its own, which is the folder of
            its run.

    Returns:
        The settings ``swept`` and the rows ``ranked``.
    """
    count = len(next(iter(swept.values())))
    scores = scores.reshape(count, -1)
    rows = []
    for c in range(count):
        values = {name: values[c] for name, values in swept.items()}
        estimate = aggregates.reported_estimate(scores[c])
        place = {"config": c} | ({"program": c * programs // count} if programs else {})
        rows.append({**values, **place, **estimate._asdict(), "returns": scores[c].tolist()})
    key = lambda row: (row["value"], np.sum(np.nan_to_num(row["returns"], nan=-1e30)))
    return {"swept": swept, "ranked": sorted(rows, key=key, reverse=True)}


def write_sweep(directory: Path, ranking: dict[str, Any]) -> None:
    """Writes ``sweep.json`` and ``sweep.png`` into a run directory, and prints the table."""
    json_files.write_json(directory / "sweep.json", ranking)
    in_order = sorted(ranking["ranked"], key=lambda row: row["config"])
    with picturing(directory):
        from purerl.display import plots

        plots.sweep_map(directory / "sweep.png", ranking["swept"], [row["returns"] for row in in_order])
    print_ranking(ranking)
