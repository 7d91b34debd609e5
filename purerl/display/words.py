"""Numbers by the names that people read, the same in every table, picture and page."""

from typing import Any

NAMES = {
    "env_steps": "frames",
    "episode_return": "return",
    "episode_return.iqm": "return",
    "episode_return.0.5": "return of the median agent",
    "episode_length": "length of episodes",
    "eval_return": "return in evaluations",
}
"""Those of logs that are more than their words. A frame is an environment step of one agent, or in a search of all."""
STATISTIC = "interquartile mean"
"""Of scores of several agents, `purerl.formulas.aggregates.iqm`."""


def shown(name: str) -> str:
    """The name of a number of a log."""
    return NAMES.get(name, name.replace("_", " "))


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, without some in its middle."""
    if len(text) <= width:
        return text
    before = (width - 1) // 2
    return f"{text[:before]}…{text[len(text) - (width - 1 - before) :]}"


def value(given: Any) -> str:
    """A value of a sweep as text: numbers with four digits."""
    return str(given) if isinstance(given, str | int) else f"{given:.4g}"


def count(number: float) -> str:
    """A number of frames as text: 1,234,567 is 1.23M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}"


def interval(estimate: dict[str, float | None], digits: int = 1) -> str:
    """An estimate's confidence interval as text; empty if there is none to tell (`aggregates.told`)."""
    low, high = estimate["low"], estimate["high"]
    return "" if low is None or low != low else f"[{low:.{digits}f}, {high:.{digits}f}]"
