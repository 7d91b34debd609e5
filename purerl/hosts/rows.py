"""The form that libraries are adapted to: environments begun and stepped row by row; and the `HostEnv` made of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.hosts import telling
from purerl.hosts.bundle import Batch, HostEnv, Leaves, Turn

Which = np.ndarray | None
"""Indices of some of the rows, ascending; None: all."""


class Ends(NamedTuple):
    """The result of one step of ``n`` rows. With ``N`` agents ``[n, N]`` leads where ``[n]`` is written.

    ``info`` returns the info of a row (`telling.Info`); None: there is none.
    """

    obs: Leaves
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Callable[[int], Any] | None = None


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
    """An environment of a library: the fields of `HostEnv`, with ``rows(num_envs, pictures)`` instead of batches.

    ``pictures``: whether the rows are drawn.

    ``apart``: any rows can be begun and stepped without the others. If it is False all step at once, and exactly those
    that ended are begun. ``paced``: any row can be begun from a seed of its own. ``limit``: the steps after which its
    own time limit truncates an episode; 0: none is known.
    """

    name: str
    observation_space: Any
    action_space: Any
    rows: Callable[[int, bool], Rows]
    num_agents: int = 1
    legal: str | None = None
    threaded: bool = False
    fps: float = 30.0
    apart: bool = True
    notes: tuple[str, ...] = ()
    seats: bool = False
    copies: Any = None
    paced: bool = True
    limit: int = 0
    zero_sum: bool = False


def host_env(source: Source, transforms: Sequence[Callable[[Rows], Rows]]) -> HostEnv:
    """Returns the `HostEnv` of ``source`` with ``transforms`` put around its rows, the first one innermost."""

    def batch(num_envs: int, pictures: bool = False) -> Batch:
        rows = source.rows(num_envs, pictures)
        for transform in transforms:
            rows = transform(rows)
        made = batched(rows, source.paced, source.num_agents)
        return checked(made) if checked else made

    checked = None
    if source.legal and source.num_agents == 1:
        from purerl.hosts import leaves  # imports Gymnasium

        checked = leaves.legality(source)
    fields = {field: value for field, value in source._asdict().items() if field in HostEnv._fields}
    return HostEnv(batch=batch, **fields, pictured=lambda num_envs: batch(num_envs, True))


def batched(rows: Rows, paced: bool = False, num_agents: int = 1) -> Batch:
    """Returns the `Batch` of ``rows``: episodes begin at once where they ended.

    A termination wins over a truncation. ``paced``: it has ``play``.
    """
    games: Games | None = None

    def reset(seeds: np.ndarray) -> Leaves:
        nonlocal games
        games = None
        rows.seed(np.asarray(seeds, np.int64))
        return rows.begin(None)

    def play(seeds: np.ndarray, limit: int) -> Leaves:
        nonlocal games
        games = Games(rows, seeds, limit, num_agents)
        return games.obs

    def step(action: np.ndarray) -> Turn:
        if games is not None:
            return games.step(action)
        obs, reward, terminated, truncated, info = rows.step(action, None)
        truncated = truncated & ~terminated
        last = terminated | truncated
        if not last.any():
            return Turn(obs, reward, terminated, truncated, obs)
        which = np.flatnonzero(last.reshape(len(last), -1).all(axis=1))
        first = merged(obs, which, rows.begin(which)) if len(which) else obs
        return Turn(obs, reward, terminated, truncated, first, told=telling.told(info, last))

    return Batch(reset, step, rows.close, rows.frame, play if paced else None)


class Games:
    """Episodes of ``rows`` from seeds ``[B, K]``, each row's one after another, as `Batch` says of ``play``."""

    def __init__(self, rows: Rows, seeds: np.ndarray, limit: int, num_agents: int):
        self._rows, self._limit = rows, limit
        self._shape = (rows.size,) if num_agents == 1 else (rows.size, num_agents)
        self._left = [[seed for seed in mine if seed >= 0] for mine in seeds.tolist()]
        self._resting = np.array([not mine for mine in self._left])
        self._time = np.zeros(rows.size, np.int64)
        self.obs = self._begin(None)

    def step(self, action: np.ndarray) -> Turn:
        """Steps the rows that have episodes left, and begins the next one where one ended."""
        which = np.flatnonzero(~self._resting) if self._resting.any() else None
        active = slice(None) if which is None else which
        reward, terminated, truncated = (np.zeros(self._shape, dtype) for dtype in (np.float32, bool, bool))
        if which is not None and not len(which):
            return Turn(self.obs, reward, terminated, truncated, self.obs)
        ends = self._rows.step(np.asarray(action)[active], which)
        reward[active], terminated[active], truncated[active] = ends.reward, ends.terminated, ends.truncated
        truncated &= ~terminated
        next_obs = merged(self.obs, which, ends.obs)
        self._time[active] += 1
        last = terminated | truncated
        told = telling.told(ends.info, last[active])
        told = told if which is None else tuple((int(which[row]), numbers) for row, numbers in told)
        ended = last.reshape(self._rows.size, -1).all(axis=1)
        over = np.flatnonzero(~self._resting & (ended | (self._time >= self._limit)))
        self.obs = next_obs
        if len(over):
            more = np.array([i for i in over if self._left[i]], np.int64)
            self._resting[over] = [not self._left[i] for i in over]
            self._time[over] = 0
            if len(more):
                self.obs = merged(next_obs, more, self._begin(more))
        return Turn(next_obs, reward, terminated, truncated, self.obs, told=told)

    def _begin(self, which: Which) -> Leaves:
        """Begins the next episode of each of the rows; those that have none begin from seed 0."""
        at = range(self._rows.size) if which is None else which
        seeds = np.zeros(self._rows.size, np.int64)
        for i in at:
            seeds[i] = self._left[i].pop(0) if self._left[i] else 0
        self._rows.seed(seeds)
        return self._rows.begin(which)


def merged(leaves: Leaves, which: Which, new: Leaves) -> Leaves:
    """Returns ``leaves`` with the rows ``which`` replaced by those of ``new``; ``new`` itself for all rows."""
    if which is None:
        return new
    result = []
    for x, y in zip(leaves, new, strict=True):
        result.append(x.copy())
        result[-1][which] = y
    return tuple(result)
