"""What libraries are adapted to: environments that are begun and stepped row by row; and a `Batch` of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from purerl.hosts.bundle import Batch, Leaves, Turn

Which = np.ndarray | None
"""Indices of some of the rows, ascending; None: all."""


class Ends(NamedTuple):
    """What one step of ``n`` rows led to. With ``N`` agents ``[n, N]`` leads where ``[n]`` is written."""

    obs: Leaves
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Rows(NamedTuple):
    """``size`` environments, none of which begins a new episode by itself.

    ``seed(seeds)`` seeds them, ``begin(which)`` begins episodes and returns their observations, and ``step(action,
    which)`` steps them; arrays are of these rows alone, new each time. ``apart`` tells that any rows can be begun and
    stepped without the others; if it is False all step at once, and those that ended, and no others, are begun.
    """

    size: int
    seed: Callable[[np.ndarray], None]
    begin: Callable[[Which], Leaves]
    step: Callable[[np.ndarray, Which], Ends]
    close: Callable[[], None]
    frame: Callable[[int], np.ndarray] | None = None
    apart: bool = True


def batched(rows: Rows) -> Batch:
    """The `Batch` of ``rows``: episodes begin at once where they ended, and what terminated is not truncated."""

    def reset(seeds: np.ndarray) -> Leaves:
        rows.seed(np.asarray(seeds, np.int64))
        return rows.begin(None)

    def step(action: np.ndarray) -> Turn:
        obs, reward, terminated, truncated = rows.step(action, None)
        truncated = truncated & ~terminated
        last = terminated | truncated
        if not last.any():
            return Turn(obs, reward, terminated, truncated, obs)
        which = np.flatnonzero(last if last.ndim == 1 else last.any(axis=1))
        return Turn(obs, reward, terminated, truncated, merged(obs, which, rows.begin(which)))

    return Batch(reset, step, rows.close, rows.frame)


def merged(leaves: Leaves, which: np.ndarray, new: Leaves) -> Leaves:
    """Copies of ``leaves`` in which the rows ``which`` are those of ``new``."""
    found = []
    for x, y in zip(leaves, new, strict=True):
        found.append(x.copy())
        found[-1][which] = y
    return tuple(found)
