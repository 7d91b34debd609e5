"""What the dashboard shows of an environment of several agents: the returns by seat, and how many games each won."""

from pathlib import Path
from typing import Any

import numpy as np

from purerl.loops.seat_metrics import FEW
from purerl.store import guards

KINDS = "return", "won", "drawn", "lost"
NOTHING = 1e-5
"""The largest mean return of a game whose rewards add up to 0, up to rounding."""


def of_run(directory: Path, command: str, summary: dict[str, Any], columns: Any) -> dict[str, Any]:
    """Returns what the page shows by seat.

    They are means over the agents that live, of the evaluation that ended a training or, before it, of the newest
    iteration of a zero-sum game.

    Args:
        directory: The run directory.
        command: The command that made the run.
        summary: Its summary, untrusted.
        columns: ``columns(directory, log)`` returns the columns of a log by name; empty if it cannot be read.

    Returns:
        ``seats``, a row for each seat with its name and `KINDS`, None where there is none; ``drawn``, the share of the
        games in which several seats share the highest return, None unless games are won; and ``curve``, the share that
        the first seat won in each iteration of a zero-sum game.
    """
    if command != "train":
        return {"seats": [], "drawn": None, "curve": []}
    shares = _of_log(directory, columns)
    rows = _of_evaluation(summary)
    if not rows:
        rows = [{"seat": str(i), **dict.fromkeys(KINDS), "won": _newest(won)} for i, won in enumerate(shares)]
    won = [row["won"] for row in rows if row["won"] is not None]
    drawn = max(1.0 - sum(won), 0.0) if won else None
    return {"seats": rows, "drawn": drawn, "curve": [x for share in shares[:1] for x in share if x == x]}


def _of_evaluation(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each seat from a summary; none if it has none."""
    alive = [each is True for each in guards.listed(summary, "alive_per_seed")]
    tables = {kind: guards.listed(summary, f"seat_{kind}_per_seed")[: len(alive)] for kind in KINDS}
    rows = []
    for i, seat in enumerate(guards.listed(summary, "seats")[:FEW]):
        row: dict[str, Any] = {"seat": guards.text(seat)}
        for kind, table in tables.items():
            of_members = [column[i] if isinstance(column, list) and i < len(column) else None for column in table]
            known = [guards.plotted(x) for x, lives in zip(of_members, alive, strict=False) if lives]
            finite = [x for x in known if np.isfinite(x)]
            row[kind] = float(np.mean(finite)) if finite else None
        rows.append(row)
    return rows


def _of_log(directory: Path, columns: Any) -> list[np.ndarray]:
    """Returns the shares of games that each seat of a zero-sum game won, ``[iterations]``, as means over members.

    The log with the metrics of each member is only read if the returns of all are 0, as they are in such a game.
    """
    returns = columns(directory, "quantiles.jsonl").get("episode_return.iqm")
    if returns is None or not (np.isfinite(returns).any() and np.nanmax(np.abs(returns)) <= NOTHING):
        return []
    table, result = columns(directory, "metrics.jsonl"), []
    for seat in range(FEW):
        if f"won/{seat}" not in table or "env_steps" not in table:
            break
        won = table[f"won/{seat}"]
        there = np.isfinite(won)
        _, place = np.unique(table["env_steps"], return_inverse=True)
        count = np.bincount(place[there], minlength=place.max(initial=-1) + 1)
        total = np.bincount(place[there], won[there], minlength=len(count))
        result.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    return result


def _newest(values: np.ndarray) -> float | None:
    """Returns the last finite one of some values; None if there is none."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else None
