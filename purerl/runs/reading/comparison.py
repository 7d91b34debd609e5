"""The comparison of runs."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.names import nearest
from purerl.store import guards

COMPARED = {
    "algo": str,
    "env": str,
    "env_params": dict,
    "env_steps": int,
    "swept": dict,
    "return_per_seed": list,
    "alive_per_seed": list,
}
"""The entries that a comparison reads from a summary, and their types."""


def compare(directories: list[Path]) -> dict[str, Any]:
    """Compares runs by their interquartile means and the first one's probability of improvement over each.

    Of a run it reads ``summary.json`` alone. An agent that diverged counts as the worst. A directory may also be a line
    of a file of results: ``FILE.jsonl:ROW``, where ``ROW`` is the entry ``row`` of the line, as in
    ``docs/results.jsonl``.

    Returns:
        ``runs``: a row for each run, which can be written as JSON.

    Raises:
        ConfigError: A directory has no readable summary, or holds a sweep; or the environments differ.
    """
    rows, scores = [], []
    for directory in directories:
        summary = _summary(directory)
        if summary["swept"]:
            raise ConfigError(f"{directory}: is a sweep; compare needs runs of one configuration")
        returns = np.array([guards.plotted(x) for x in summary["return_per_seed"]])
        scores.append(np.where(summary["alive_per_seed"], returns, np.nan))
        facts = {name: summary[name] for name in ("algo", "env", "env_params", "env_steps")}
        rows.append({"run": str(directory), **facts, "agents": len(scores[-1])})
        for name in ("env", "env_params"):
            if rows[-1][name] != rows[0][name]:
                raise ConfigError(
                    f"{directory}: {name} = {rows[-1][name]!r} differs from {rows[0][name]!r} of {directories[0]}"
                )
    for row, score in zip(rows, scores, strict=True):
        better = aggregates.reported_estimate(scores[0], score, statistic=aggregates.probability_of_improvement)
        row |= {"return_mean": float(np.mean(score)), "return_iqm": aggregates.reported_estimate(score)._asdict()}
        row["return_per_seed"] = score.tolist()
        row |= {"improvement_of_first": better._asdict()}
    return {"runs": rows}


def _summary(source: Path) -> dict[str, Any]:
    """Reads the summary of a run or of a line of results. Both are untrusted.

    Raises:
        ConfigError: A comparison cannot use it. One line.
    """
    file, is_line, row = str(source).partition(".jsonl:")
    path = Path(f"{file}.jsonl") if is_line else source / "summary.json"
    summary = _line(path, row) if is_line else guards.read_json(path)
    if not isinstance(summary, dict):
        raise ConfigError(f"{path}: not the summary of a run")
    wrong = [name for name, kind in COMPARED.items() if type(summary.get(name)) is not kind]
    if wrong:
        raise ConfigError(f"{path}: lacks {', '.join(wrong)}, or has them of another type")
    returns, alive = summary["return_per_seed"], summary["alive_per_seed"]
    if len(returns) != len(alive) or not returns:
        raise ConfigError(f"{path}: has {len(returns)} returns of {len(alive)} agents")
    if not all(x is None or guards.is_number(x) for x in returns):
        raise ConfigError(f"{path}: return_per_seed must hold numbers")
    if not all(type(x) is bool for x in alive):
        raise ConfigError(f"{path}: alive_per_seed must hold true and false")
    if not 0 <= summary["env_steps"] < 2**63 or not re.fullmatch(r"[\w./:-]{1,200}", summary["algo"] + summary["env"]):
        raise ConfigError(f"{path}: not the summary of a run")
    return summary


def _line(path: Path, row: str) -> dict[str, Any]:
    """Reads the newest line of a row from a file of results, and names its entries as a summary does.

    Raises:
        ConfigError: The file is not valid, or has no such row.
    """
    raw = guards.read_bytes(path, guards.MOST_JSON_BYTES)
    try:
        lines = [guards.parse_json(line) for line in raw.splitlines()]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    rows = {str(line.get("row")): line for line in lines if isinstance(line, dict)}
    rows = {name: line for name, line in rows.items() if name.isprintable()}
    if row not in rows:
        raise ConfigError(f"{path}: has no row {row!r}; nearest: {nearest(row, rows)}")
    line = rows[row]
    returns = line.get("returns")
    alive = [x is not None for x in returns] if isinstance(returns, list) else None
    renamed: dict[str, Any] = {"env_steps": line.get("frames"), "return_per_seed": returns, "alive_per_seed": alive}
    return {"env_params": {}, "swept": {}, **line, **renamed}
