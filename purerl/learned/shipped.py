"""Learned functions that come with purerl: files of `purerl.learned.artefacts`, by name."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("shipped")


def files() -> dict[str, Path]:
    """Returns the files of the learned functions that come with purerl, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def compared(rows: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Groups the environments of a report by how the function compares with the tuned baselines there.

    Args:
        rows: The ``rows`` of a report (`purerl.meta.report.report`).

    Returns:
        Names of environments by what is said of them. An interval of a difference that contains 0 is no difference.
    """
    gaps: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        gaps.setdefault(row["env"], []).append(row["iqm_difference"])
    found: dict[str, list[str]] = {"better than all tuned baselines": [], "worse than one": [], "no worse than any": []}
    better, worse, between = found.values()
    for env, each in gaps.items():
        is_better, is_worse = all(gap["low"] > 0 for gap in each), any(gap["high"] < 0 for gap in each)
        (better if is_better else worse if is_worse else between).append(env)
    return found
