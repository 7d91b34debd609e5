"""Results of evaluated games: the returns by seat, and how many games were won, drawn and lost."""

from typing import Any

import numpy as np

from purerl.formulas import aggregates
from purerl.loops.seat_metrics import FEW, labels

OUTCOMES = {"won": 1, "drawn": 0, "lost": -1}
"""The names of the `purerl.formulas.outcomes.outcomes` of a game."""


def by_seat(episode_return: np.ndarray, outcome: np.ndarray, num_agents: int, *, counted: bool) -> dict[str, Any]:
    """Computes the results of the episodes ``[P, R]`` of members by the seat ``row % N`` of each row.

    Args:
        episode_return: The returns, nan where a member has none.
        outcome: The `outcomes` of the games.
        num_agents: ``N``, more than 1.
        counted: Whether games are won.

    Returns:
        ``seats``, their names: numbers, or, of more than `FEW` seats, ``least`` and ``largest``. For each member and
        each of these ``seat_return_per_seed``, the mean return; and if games are won, of at most `FEW` seats, what
        `shares` has, likewise.
    """
    seat = np.arange(episode_return.shape[1]) % num_agents
    returns = np.stack([_mean(episode_return[:, seat == each]) for each in range(num_agents)], axis=1)
    many = num_agents > FEW
    told = np.stack([returns.min(axis=1), returns.max(axis=1)], axis=1) if many else returns
    result = {"seats": labels(num_agents), "seat_return_per_seed": told.tolist()}
    if many or not counted:
        return result
    each = [shares(outcome[:, seat == i], np.isfinite(episode_return).any(axis=1)) for i in range(num_agents)]
    of_members = {name: [list(seats) for seats in zip(*(one[name] for one in each), strict=True)] for name in each[0]}
    return result | {f"seat_{name}": column for name, column in of_members.items()}


def shares(outcome: np.ndarray, known: np.ndarray) -> dict[str, Any]:
    """Computes the shares of the games ``[P, G]`` of members that were won, drawn and lost, with their 95 % intervals.

    Returns:
        ``won_per_seed`` ``[P]`` and ``won_interval_per_seed`` ``[P]`` pairs, and so on; nan of members that are not
        ``known`` (bool ``[P]``).
    """
    size = np.where(known, outcome.shape[1], 0)
    result = {}
    for name, number in OUTCOMES.items():
        share = aggregates.share((outcome == number).sum(axis=1), size)
        result[f"{name}_per_seed"] = share.value.tolist()
        result[f"{name}_interval_per_seed"] = np.stack([share.low, share.high], axis=-1).tolist()
    return result


def columns(evaluated: dict[str, Any]) -> dict[str, list[float]]:
    """Names the results of `by_seat`, ``[P]`` each, as `seat_metrics.seat_metrics` names those of a training."""
    result: dict[str, list[float]] = {}
    for name in ("return", "won"):
        table = evaluated.get(f"seat_{name}_per_seed", [])
        for seat, column in zip(evaluated.get("seats", []), zip(*table, strict=True), strict=False):
            result[f"{name}/{seat}"] = list(column)
    if won := evaluated.get("seat_won_per_seed"):
        result["drawn"] = [max(1 - sum(of_member), 0.0) for of_member in won]
    return result


def _mean(values: np.ndarray) -> np.ndarray:
    """Computes the means ``[P]`` of ``[P, R]``; nan of none."""
    return values.sum(axis=1, dtype=np.float64) / np.where(values.shape[1], values.shape[1], np.nan)
