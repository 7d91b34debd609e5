"""Curves as JSON, summarised over members, for a page to draw."""

from typing import Any

from purerl.display.lines import Line, Readable
from purerl.formulas import aggregates


def curves(drawn: Readable) -> dict[str, Any]:
    """Returns the curves of one figure as JSON.

    Returns:
        ``lines``, those of `written`; and ``setting``, ``offered`` and ``told`` of ``drawn``.
    """
    return {**drawn._asdict(), "lines": [written(line) for line in drawn.lines]}


def written(line: Line) -> dict[str, Any]:
    """Summarises a line over its members.

    Returns:
        ``name``; ``label``, the name with the numbers of configurations and agents; ``size``, the number of members;
        ``x`` ``[points]``; ``mid``, the interquartile mean ``[points]``; ``low`` and ``high``, the ends of its 95 %
        bootstrap interval ``[points]``; and ``lines``, the values ``[points]`` of each member if they are too few for
        an interval. What is missing is nan.
    """
    middle, low, high = aggregates.bands(line.values).tolist()
    size = len(line.values)
    few = 1 < size < aggregates.LEAST
    about = {"name": line.name, "label": line.label, "size": size, "x": line.x.tolist()}
    return {**about, "mid": middle, "low": low, "high": high, "lines": line.values.tolist() if few else []}
