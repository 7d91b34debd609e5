"""Runs set beside each other."""

from pathlib import Path
from typing import Any

import numpy as np

from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.store import json_files

COMPARED = ("algo", "env", "env_params", "env_steps", "swept", "return_per_seed", "alive_per_seed")
"""What a comparison reads of a summary."""


def compare(directories: list[Path]) -> dict[str, Any]:
    """Runs side by side: interquartile means, and the first's probability of improvement over each of the others.

    Reads ``summary.json`` alone. Raises `ConfigError` for a directory without one, for a sweep, and for runs on
    different environments. An agent that died counts as the worst.
    """
    rows, scores = [], []
    for directory in directories:
        summary = json_files.read_json(directory / "summary.json")
        missing = [name for name in COMPARED if name not in summary]
        if missing:
            raise ConfigError(f"{directory / 'summary.json'}: lacks {', '.join(missing)}")
        if summary["swept"]:
            raise ConfigError(f"{directory}: holds a sweep; compare needs runs of one configuration")
        scores.append(np.where(summary["alive_per_seed"], summary["return_per_seed"], np.nan))
        facts = {name: summary[name] for name in ("algo", "env", "env_params", "env_steps")}
        rows.append({"run": str(directory), **facts, "agents": len(scores[-1])})
        for name in ("env", "env_params"):
            if rows[-1][name] != rows[0][name]:
                raise ConfigError(
                    f"{directory}: {name} = {rows[-1][name]!r} differs from {rows[0][name]!r} of {directories[0]}"
                )
    for row, score in zip(rows, scores, strict=True):
        better = aggregates.estimate(scores[0], score, statistic=aggregates.probability_of_improvement)
        row |= {"return_mean": float(np.mean(score)), "return_iqm": aggregates.estimate(score)._asdict()}
        row |= {"improvement_of_first": better._asdict()}
    return {"runs": rows}
