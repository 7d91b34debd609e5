"""The lines of ``results.jsonl``, and what each says of its row."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rows import ROWS

SAME_TASK = {"flatten", "resets", "max_steps"}
"""Parameters of environments with which rows have the task that others have; ``max_steps`` is that of simple_spread."""


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The newest line of each row, by its name."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["row"]: line for line in map(json.loads, lines)}


def in_order(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines in the order of the rows."""
    order = {row.name: i for i, row in enumerate(ROWS)}
    return sorted(lines, key=lambda line: order.get(line["row"], len(order)))


def interval(returns: Sequence[float | None]) -> Any:
    """The `aggregates.Estimate` of the interquartile mean over seeds; None, a seed that died, ranks last."""
    import numpy as np

    from purerl.formulas import aggregates

    return aggregates.estimate(np.array(returns, np.float64))


def is_of_a_cpu(line: dict[str, Any]) -> bool:
    """Returns whether a line was trained on a CPU, as all were that name no device."""
    return line.get("device", "cpu") == "cpu"


def speed(line: dict[str, Any]) -> float:
    """Frames/s of all seeds of a line."""
    return line["frames"] * len(line["returns"]) / line["seconds"]
