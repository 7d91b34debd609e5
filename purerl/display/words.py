"""Names and forms of numbers for users, the same in every table, picture and page."""

import math
from typing import Any

NAMES = {
    "env_steps": "frames",
    "episode_return": "return",
    "episode_return.iqm": "return",
    "episode_return.0.5": "return of the median agent",
    "episode_length": "length of episodes",
    "eval_return": "return in evaluations",
    "won": "games won",
    "drawn": "games drawn",
    "eval_won": "games won in evaluations",
    "eval_drawn": "games drawn in evaluations",
}
"""The names of those logged numbers that are not shown as the words of their name in the log. A frame is an
environment step of one agent, or in a search of all."""
OF_SEATS = "episode_return", "eval_return", "won", "eval_won"
"""The logged numbers of which there is also one of each seat, by its number, or of the ``least`` and the ``largest``
of many seats (`purerl.loops.seat_metrics`)."""
STATISTIC = "interquartile mean"
"""The name of `purerl.formulas.aggregates.iqm` of scores of several agents."""


def shown(name: str) -> str:
    """Returns the name under which a logged number is shown."""
    kind, _, seat = name.partition("/")
    if seat and kind in OF_SEATS:
        return f"{shown(kind)}, {f'seat {seat}' if seat.isdecimal() else f'{seat} of seats'}"
    return NAMES.get(name, name.replace("values.", "value of ").replace("_", " "))


def shortened(text: str, width: int) -> str:
    """Shortens ``text`` to at most ``width`` characters by leaving out some in its middle."""
    if len(text) <= width:
        return text
    before = (width - 1) // 2
    return f"{text[:before]}…{text[len(text) - (width - 1 - before) :]}"


def value(given: Any) -> str:
    """Returns a value of a sweep as text: numbers with four digits."""
    return str(given) if isinstance(given, str | int) else f"{given:.4g}"


def simulations(about: dict[str, Any]) -> str:
    """Returns the number of simulations of a search, also of the opponents', after commas; empty without searches."""
    own = about.get("simulations")
    theirs = about.get("simulations_against")
    told = f", {own} simulation{'s'[: own != 1]}" if type(own) is int else ""
    return f"{told}, {theirs} of the opponents" if type(theirs) is int else told


def agents(config: int, seeds: int) -> str:
    """Returns the numbers of the agents of a sweep's configuration as text: one for each of its seeds."""
    first = config * seeds
    return str(first) if seeds == 1 else f"{first}-{first + seeds - 1}"


def digits(*values: float) -> int:
    """Returns how many digits after the point show ``values``: one, or if all are below 2 those of three figures."""
    largest = max((abs(x) for x in values if math.isfinite(x)), default=0.0)
    return 1 if largest >= 2 or largest == 0 else min(4, 2 - math.floor(math.log10(max(largest, 1e-9))))


def count(number: float) -> str:
    """Returns a number of frames as text: 1,234,567 is 1.23M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}"


def interval(estimate: dict[str, float | None], digits: int = 1) -> str:
    """Returns an estimate's confidence interval as text; empty if there is none (`aggregates.reported_estimate`)."""
    low, high = estimate["low"], estimate["high"]
    return "" if low is None or low != low else f"[{low:.{digits}f}, {high:.{digits}f}]"
