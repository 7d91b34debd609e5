"""Environments in worker processes, as the learner's process steps them. Needs no JAX.

`open` starts the workers. Each owns a share of every group of environments; all of them step one group at a time, while
the other waits for its actions. What an environment does depends on its seed and its actions, not on the worker that
steps it. A worker that fails is restarted.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from purerl.errors import ConfigError, HostError, printable
from purerl.hosts import copies, memory, processes, scouts
from purerl.hosts.bundle import Leaves, Recipe, Stepper, Turn
from purerl.hosts.messages import ENDED, MAP, TOLD, command
from purerl.hosts.processes import Fault, Process

MOST_GROUPS = 64
"""The most groups that a command of one byte can name."""
START_SECONDS = 300.0
"""Seconds that a worker may take to make its environments."""


def to_stderr(line: str) -> None:
    """Prints a line to the standard error."""
    print(line, file=sys.stderr, flush=True)


def open(
    recipe: Recipe,
    num_envs: int,
    *,
    num_workers: int,
    groups: int = 1,
    timeout: float = 60.0,
    max_restarts: int = 10,
    warn: Callable[[str], None] = to_stderr,
    games: tuple[int, int] = (0, 0),
) -> "Pool":
    """Starts the workers that step ``num_envs`` environments in ``groups``, and waits until they are ready.

    Environments are spread over groups and workers as evenly as can be, in order.

    Args:
        recipe: What the environment is made from.
        num_envs: The number of all environments.
        num_workers: The number of workers. It is at most the size of the smallest group.
        groups: The number of groups.
        timeout: Seconds that a worker may take for a step or a reset of its share of a group.
        max_restarts: Number of restarts of workers in total.
        warn: ``warn(line)`` is called for each restart of a worker.
        games: The number of episodes of each environment and their limit, if they are to `Batch.play`.

    Raises:
        ConfigError: If a worker cannot make its environments, or there are too many or too few groups.
    """
    most = min(num_envs, MOST_GROUPS)
    if not 1 <= groups <= most:
        raise ConfigError(f"groups = {groups}: must be in [1, {most}], for {num_envs} environments")
    sizes = spread(num_envs, groups)
    return Pool(recipe, sizes, max(1, min(num_workers, *sizes)), timeout, max_restarts, warn, games)


def spread(total: int, parts: int) -> list[int]:
    """Returns sizes of ``parts`` that add up to ``total`` and differ by one at most, the larger ones first."""
    return [total // parts + (i < total % parts) for i in range(parts)]


class Pool:
    """Workers, and a `Stepper` for each group of environments, which one thread at a time may use.

    A worker that dies, raises, takes too long or returns `InvalidData` is killed and restarted. In the next turn of
    each group its episodes are truncated, with reward 0, the last good observation as `Turn.next_obs` and the first of
    a new episode, from a new seed, as `Turn.obs`; `Turn.cut` counts them. ``restarts`` counts such workers. Once
    ``max_restarts`` are used up everything is closed and `HostError` is raised. Closing one stepper closes all.
    """

    def __init__(
        self,
        recipe: Recipe,
        sizes: list[int],
        num_workers: int,
        timeout: float,
        max_restarts: int,
        warn: Callable[[str], None],
        games: tuple[int, int],
    ):
        self.restarts = 0
        self._recipe, self._sizes, self._games = recipe, sizes, games
        self._timeout, self._max_restarts, self._warn = timeout, max_restarts, warn
        self._firsts = np.cumsum([0, *sizes]).tolist()  # index of the first environment of each group
        ends = [np.cumsum([0, *spread(size, num_workers)]).tolist() for size in sizes]
        self._rows = [[slice(group[w], group[w + 1]) for group in ends] for w in range(num_workers)]
        self._seeds: list[np.ndarray | None] = [None] * len(sizes)
        self._slot = [0] * len(sizes)  # index of the latest valid observations
        self._cut: list[set[int]] = [set() for _ in sizes]  # workers whose episodes are truncated at the next step
        self._sent = [0.0] * len(sizes)
        self._workers: list[Process] = []
        self._layout: list[Any] = []
        scout = scouts.taken(recipe, len(sizes))
        self._file = scout.memory if scout else memory.anonymous()
        copies.workers.add(self)
        with processes.starting(self.close, recipe.name, "creates"):
            if scout:
                self._workers.append(scout.process)
                scout.order(self._share(0))
            for w in range(len(self._workers), num_workers):
                self._workers.append(self._start(w))
            for worker in self._workers:
                self._ready(worker)
            layout = memory.Layout(*self._layout)
            memory.resize(self._file, layout, sizes, num_workers, games[0])
            self._memory = memory.mapped(self._file, layout, sizes, num_workers, games[0])
            for worker in self._workers:
                processes.send(worker, MAP)
        self.steppers = tuple(self._stepper(group) for group in range(len(sizes)))

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers, by force those that take too long to close their environments, and frees the memory."""
        workers, self._workers = self._workers, []
        processes.end(workers, self._warn)
        copies.workers.discard(self)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _stepper(self, group: int) -> Stepper:
        return Stepper(
            lambda seeds: self._reset(group, seeds),
            lambda action: self._send(group, action),
            lambda: self._receive(group),
            self.close,
            (lambda seeds, limit: self._reset(group, seeds)) if self._games[0] else None,
        )

    def _reset(self, group: int, seeds: np.ndarray) -> Leaves:
        first = all(known is None for known in self._seeds)
        self._memory.groups[group].seeds[:] = seeds
        self._seeds[group] = seeds if self._games[0] else np.array(seeds, np.int64)
        self._order(group, begins=True)
        for w in range(len(self._workers)):
            try:
                self._answer(w, group)
            except Fault as fault:
                if first:
                    self.close()
                    raise ConfigError(f"env = {self._recipe.name!r}: {self._who(w)} {fault}") from None
                self._restart(w, fault)
        self._cut[group].clear()
        self._slot[group] ^= 1
        return self._observed(group)

    def _send(self, group: int, action: np.ndarray) -> None:
        into = self._memory.groups[group].action
        if action.shape != into.shape:
            raise ValueError(f"actions are {list(action.shape)}, must be {list(into.shape)}")
        np.copyto(into, action, casting="same_kind")
        self._order(group, begins=False)

    def _receive(self, group: int) -> Turn:
        ended, cut, shared, told = False, self._cut[group], self._memory.groups[group], list[Any]()
        for w in range(len(self._workers)):
            if w not in cut:
                try:
                    kind, words = self._answer(w, group)
                    ended |= kind in (ENDED, TOLD)
                    told += [(row + self._rows[w][group].start, numbers) for row, numbers in words or ()]
                except Fault as fault:
                    self._restart(w, fault)
        before = shared.obs[self._slot[group]]
        self._slot[group] ^= 1
        obs, reward = self._observed(group), shared.reward.copy()
        terminated, truncated = shared.terminated.copy(), shared.truncated.copy()
        rows = [self._rows[w][group] for w in cut]
        for those in rows:
            reward[those], terminated[those], truncated[those] = 0.0, False, True
        next_obs = obs
        if ended or rows:
            last = (terminated | truncated).reshape(len(reward), -1).any(axis=1) | bool(self._games[0])
            next_obs = tuple(x.copy() for x in obs)
            for x, y, old in zip(next_obs, shared.next_obs, before, strict=True):
                x[last] = y[last]
                for those in rows:
                    x[those] = old[those]
        cut.clear()
        lost = sum(those.stop - those.start for those in rows)
        return Turn(next_obs, reward, terminated, truncated, obs, lost, tuple(told))

    def _observed(self, group: int) -> Leaves:
        return tuple(x.copy() for x in self._memory.groups[group].obs[self._slot[group]])

    def _order(self, group: int, begins: bool) -> None:
        """Sends all workers the same command, except those that were restarted since this group's last turn."""
        if not self._workers:
            raise HostError("the workers that step the environment have been closed")
        self._sent[group] = time.monotonic()
        order = command(group, self._slot[group] ^ 1, begins)
        for w, worker in enumerate(self._workers):
            if begins or w not in self._cut[group]:
                processes.send(worker, order)

    def _answer(self, w: int, group: int) -> tuple[bytes, Any]:
        began, sent = self._memory.began, self._sent
        return processes.answer(self._workers[w], group, self._timeout, lambda: max(sent[group], began[w]))

    def _start(self, w: int) -> Process:
        return processes.start(self._share(w), self._file, len(self._sizes))

    def _share(self, w: int) -> dict[str, Any]:
        """Returns the fields of the `Share` of a worker, but for the file descriptors."""
        rows = [[group.start, group.stop] for group in self._rows[w]]
        share = {"worker": w, "workers": len(self._rows), **self._recipe._asdict(), "sizes": self._sizes, "rows": rows}
        share |= {"games": list(self._games), "scout": 0}
        share["first"] = [first + start for first, (start, _) in zip(self._firsts, rows, strict=False)]
        return share

    def _ready(self, worker: Process) -> None:
        """Waits until a worker has made its environments, and checks that all layouts are the same."""
        begun = time.monotonic()
        _, layout = processes.answer(worker, 0, max(self._timeout, START_SECONDS), lambda: begun)
        self._layout = self._layout or layout
        if layout != self._layout:
            raise Fault("has other spaces than were made before")

    def _restart(self, w: int, fault: Fault) -> None:
        """Restarts a worker and begins episodes in all groups that have had any, from seeds that are new."""
        while True:
            processes.kill(self._workers[w])
            line = printable(f"{self._who(w)} {fault}")
            if self.restarts == self._max_restarts:
                self.close()
                raise HostError(f"{line}; no restarts left of {self._max_restarts}")
            self.restarts += 1
            self._warn(f"{line}; is restarted ({self.restarts} of {self._max_restarts}); its episodes are truncated")
            try:
                self._workers[w] = self._start(w)
                self._ready(self._workers[w])
                processes.send(self._workers[w], MAP)
                for group, seeds in enumerate(self._seeds):
                    if seeds is not None:
                        self._begin(w, group, seeds)
                return
            except Fault as again:
                fault = again

    def _begin(self, w: int, group: int, seeds: np.ndarray) -> None:
        """Begins episodes in a restarted worker, from seeds made of those that they began with before."""
        rows = self._rows[w][group]
        again = [
            seed if seed < 0 else np.random.SeedSequence([seed, self.restarts]).generate_state(1)[0] >> 1
            for seed in seeds[rows].ravel().tolist()
        ]
        self._memory.groups[group].seeds[rows] = np.reshape(again, seeds[rows].shape)
        self._sent[group] = time.monotonic()
        processes.send(self._workers[w], command(group, self._slot[group] ^ 1, True))
        self._answer(w, group)
        self._cut[group].add(w)

    def _who(self, w: int) -> str:
        both = zip(self._firsts, self._rows[w], strict=False)
        rows = [f"{first + group.start} to {first + group.stop - 1}" for first, group in both]
        return f"worker {w} (environments {' and '.join(rows)})"
