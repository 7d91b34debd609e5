"""Numbers that environments tell in the ``info`` of the last step of an episode, such as whether it was a success."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from purerl.hosts.leaves import MASK

Info = Callable[[int], Any]
"""A function that returns the ``info`` of a row: a mapping or, of several agents, a list with one for each."""
Told = tuple[tuple[int, dict[str, float]], ...]
"""Rows in which an episode ended, with what they told; with several agents, once for each that ended."""
_LEFT_OUT = {MASK, "TimeLimit.truncated", "final_obs", "final_observation", "final_info", "env_id", "players"}
_MOST = 64
"""The most numbers of one ``info``."""


def told(info: Info | None, last: np.ndarray) -> Told:
    """Returns what the rows told in which an episode ended: where ``last``, ``[n]`` or ``[n, N]``, is True."""
    if info is None:
        return ()
    found: list[tuple[int, dict[str, float]]] = []
    for row in np.flatnonzero(last.reshape(len(last), -1).any(axis=1)):
        given = info(int(row))
        every = [given] if last.ndim == 1 else [each for each, ended in zip(given, last[row], strict=True) if ended]
        found += [(int(row), numbers) for each in every if (numbers := numbers_of(each))]
    return tuple(found)


def numbers_of(info: Any) -> dict[str, float]:
    """Returns the numbers and flags in an ``info`` by name; those in a dictionary within it as ``OUTER/INNER``."""
    result: dict[str, float] = {}
    for name, value in info.items() if isinstance(info, Mapping) else ():
        if name in _LEFT_OUT or not isinstance(name, str) or name.startswith("_"):
            continue
        inner = value if isinstance(value, Mapping) else {None: value}
        for key, x in inner.items():
            number = _number(x)
            if number is not None and (key is None or isinstance(key, str)) and len(result) < _MOST:
                result[name if key is None else f"{name}/{key}"] = number
    return result


def _number(x: Any) -> float | None:
    if isinstance(x, bool | int | float | np.number | np.bool_):
        return float(x)
    single = isinstance(x, np.ndarray) and x.size == 1 and x.dtype.kind in "fiub"
    return float(x.reshape(-1)[0]) if single else None


def of_vector(info: Any, index: int) -> dict[str, Any]:
    """Returns the ``info`` of one environment of a vector: elements of arrays, where ``_NAME`` says they are there."""
    result: dict[str, Any] = {}
    for name, values in info.items() if isinstance(info, Mapping) else ():
        there = info.get(f"_{name}")
        if str(name).startswith("_") or (there is not None and not there[index]):
            continue
        if isinstance(values, Mapping):
            result[name] = of_vector(values, index)
        elif isinstance(values, np.ndarray | list | tuple) and len(values) > index:
            result[name] = values[index]
    return result
