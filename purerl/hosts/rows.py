"""The form that libraries are adapted to: environments begun and stepped row by row; and the `HostEnv` made of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.hosts.bundle import Batch, HostEnv, Leaves, Turn

Which = np.ndarray | None
"""Indices of some of the rows, ascending; None: all."""


class Ends(NamedTuple):
    """The result of one step of ``n`` rows. With ``N`` agents ``[n, N]`` leads where ``[n]`` is written."""

    obs: Leaves
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Rows(NamedTuple):
    """``size`` environments, none of which begins a new episode by itself.

    ``seed(seeds)`` seeds them, ``begin(which)`` begins episodes and returns their observations, and ``step(action,
    which)`` steps them; arrays are of these rows alone, and new each time.
    """

    size: int
    seed: Callable[[np.ndarray], None]
    begin: Callable[[Which], Leaves]
    step: Callable[[np.ndarray, Which], Ends]
    close: Callable[[], None]
    frame: Callable[[int], np.ndarray] | None = None


class Source(NamedTuple):
    """An environment of a library: the fields of `HostEnv`, with ``rows(num_envs)`` instead of batches.

    ``apart``: any rows can be begun and stepped without the others. If it is False all step at once, and exactly those
    that ended are begun.
    """

    name: str
    observation_space: Any
    action_space: Any
    rows: Callable[[int], Rows]
    num_agents: int = 1
    legal: str | None = None
    threaded: bool = False
    fps: float = 30.0
    apart: bool = True
    notes: tuple[str, ...] = ()


def host_env(source: Source, transforms: Sequence[Callable[[Rows], Rows]]) -> HostEnv:
    """Returns the `HostEnv` of ``source`` with ``transforms`` put around its rows, the first one innermost."""

    def batch(num_envs: int) -> Batch:
        rows = source.rows(num_envs)
        for transform in transforms:
            rows = transform(rows)
        return checked(batched(rows)) if checked else batched(rows)

    checked = None
    if source.legal and source.num_agents == 1:
        from purerl.hosts import leaves  # imports Gymnasium

        checked = leaves.legality(source)
    fields = {field: value for field, value in source._asdict().items() if field in HostEnv._fields}
    return HostEnv(batch=batch, **fields)


def batched(rows: Rows) -> Batch:
    """Returns the `Batch` of ``rows``: episodes begin at once where they ended.

    A termination wins over a truncation.
    """

    def reset(seeds: np.ndarray) -> Leaves:
        rows.seed(np.asarray(seeds, np.int64))
        return rows.begin(None)

    def step(action: np.ndarray) -> Turn:
        obs, reward, terminated, truncated = rows.step(action, None)
        truncated = truncated & ~terminated
        last = terminated | truncated
        if not last.any():
            return Turn(obs, reward, terminated, truncated, obs)
        which = np.flatnonzero(last if last.ndim == 1 else last[:, 0])
        return Turn(obs, reward, terminated, truncated, merged(obs, which, rows.begin(which)))

    return Batch(reset, step, rows.close, rows.frame)


def merged(leaves: Leaves, which: Which, new: Leaves) -> Leaves:
    """Returns ``leaves`` with the rows ``which`` replaced by those of ``new``; ``new`` itself for all rows."""
    if which is None:
        return new
    result = []
    for x, y in zip(leaves, new, strict=True):
        result.append(x.copy())
        result[-1][which] = y
    return tuple(result)
