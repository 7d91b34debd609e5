"""Spaces of observations and actions."""

from typing import Any, NamedTuple


class Box(NamedTuple):
    """Arrays of one shape whose elements lie in ``[low, high]`` (scalars or arrays that broadcast to ``shape``)."""

    low: Any
    high: Any
    shape: tuple[int, ...]
    dtype: Any


class Discrete(NamedTuple):
    """The integers ``0 .. n - 1``."""

    n: int


Space = Box | Discrete
