"""The checks of `check_env` for an environment of the host: random play there, in which every promise is checked."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from purerl.errors import ConfigError, place
from purerl.hosts.bundle import Batch, HostEnv, Leaves, Turn
from purerl.hosts.sound import InvalidData, sound_obs, sound_turn
from purerl.spaces import is_picture

_ROUNDING = 1e-6
"""How far a float32 observation may lie outside of its space, in units of one plus the bound."""
AGAIN = 32
"""How many steps are played once more from the same seeds."""


class CheckedPlay(NamedTuple):
    """Broken promises and what the play did not meet, a line each, and how many episodes ended which way."""

    problems: list[str]
    notes: list[str]
    terminated: int
    truncated: int


def play(host: HostEnv, seed: int, num_steps: int, num_envs: int) -> CheckedPlay:
    """Steps ``num_envs`` environments ``num_steps`` times at random, and a few of these steps a second time.

    It checks structures, shapes, dtypes, spaces, finite numbers, flags that exclude each other, masks, the last
    observation of an episode against the first of the next, beginnings that follow from their seeds, and the picture.
    """
    from purerl.hosts import moves  # imports Gymnasium

    draws = np.random.default_rng(seed)
    seeds, checks = draws.integers(0, 2**31, num_envs), _Checks(host, num_envs)
    batch = host.batch(num_envs)
    try:
        obs = checks.begun(batch, seeds)
        first, given, turns = obs, [], []
        for time in range(1, num_steps + 1):
            if checks.broken:
                break
            given.append(moves.random(host, draws, obs))
            turn = checks.called(functools.partial(batch.step, given[-1].copy()), f"step: {{}}, first at step {time}")
            if turn is not None:
                checks.stepped(time, turn)
            if not checks.broken:
                obs = turn.obs
                turns += [turn] * (time <= AGAIN)
        if not checks.broken:
            checks.repeated(batch, seeds, first, list(zip(given, turns, strict=False)))
    finally:
        batch.close()
    if not checks.broken:
        checks.pictured(seeds[:1])
    notes = checks.final_notes(num_steps, num_envs)
    return CheckedPlay(list(checks.problems), notes, checks.terminated, checks.truncated)


class _Checks:
    """The problems and the notes so far, and counts of what was met."""

    def __init__(self, host: HostEnv, num_envs: int):
        from purerl.hosts import leaves

        self._host = host
        lead = (num_envs,) if host.num_agents == 1 else (num_envs, host.num_agents)
        self._lead, self._leaves = lead, leaves.flat(host.observation_space)
        self._bounds = [_bounds(_at(host.observation_space, leaf.path)) for leaf in self._leaves]
        self._like = tuple(np.zeros((*lead, *leaf.shape), leaf.dtype) for leaf in self._leaves)
        self._like += (np.zeros(lead, bool),) if host.seats else ()
        self.problems: dict[str, None] = {}
        self.notes: list[str] = list(host.notes)
        self.broken, self.terminated, self.truncated = False, 0, 0
        self._ends = self._like_first = 0

    def begun(self, batch: Batch, seeds: np.ndarray) -> Leaves:
        """Checks how episodes begin, and returns the observations."""
        obs = self.called(lambda: batch.reset(seeds), "reset: {}")
        if obs is not None:
            self._observations(obs, "reset")
        if self.broken:
            return ()
        obs = tuple(x.copy() for x in obs)
        others = self.called(lambda: batch.reset(seeds + 1 - 2 * (seeds > 0)), "reset: {}")
        again = others and self.called(lambda: batch.reset(seeds), "reset: {}")
        if self.broken:
            return ()
        if not _same(obs, again):
            self._problem("reset: the same seeds must give the same first observations")
        if _same(obs, others) and all(_same(_row(obs, 0), _row(obs, i)) for i in range(self._lead[0])):
            self.notes.append("every episode begins with the same observation")
        return again

    def called(self, call: Callable[[], Any], line: str) -> Any:
        """Returns ``call()``; None, and notes a problem, if an adapter raises for a wrong value of the environment."""
        try:
            return call()
        except (ValueError, TypeError, KeyError) as error:
            if place(error) and not isinstance(error, InvalidData):
                raise
            self._problem(line.format(error))
            self.broken = True
            return None

    def stepped(self, time: int, turn: Turn) -> None:
        """Checks the result of step ``time``."""
        at = f"first at step {time}"
        try:
            turn = sound_turn(turn, self._lead, self._like)
        except InvalidData as error:
            self._problem(f"step: {error}, {at}")
            self.broken = True
            return
        self._observations(turn.obs, "step's obs", at)
        if turn.next_obs is not turn.obs:
            self._observations(turn.next_obs, "step's next_obs", at)
        if self._host.zero_sum:
            most = _ROUNDING * self._host.num_agents * (1 + np.abs(turn.reward).max(axis=1))
            if (np.abs(turn.reward.sum(axis=1)) > most).any():
                self._problem(f"reward: zero_sum, but those of all agents do not add up to 0, {at}")
        ended: Any = turn.last.reshape(self._lead[0], -1).all(axis=1)
        self.terminated += int(np.sum(turn.terminated))
        self.truncated += int(np.sum(turn.truncated))
        for i in range(self._lead[0]):
            same = _same(_row(turn.next_obs, i), _row(turn.obs, i))
            if ended[i]:
                self._ends, self._like_first = self._ends + 1, self._like_first + same
            elif not same:
                self._problem(f"step: next_obs and obs must be equal where no episode ended, {at}")

    def repeated(self, batch: Batch, seeds: np.ndarray, first: Leaves, played: list[tuple[np.ndarray, Turn]]) -> None:
        """Plays the first steps once more."""
        again = self.called(lambda: batch.reset(seeds), "reset: {}")
        same = again is not None and _same(again, first)
        for action, turn in played:
            other = None if self.broken else self.called(functools.partial(batch.step, action.copy()), "step: {}")
            if other is None:
                return
            same = same and _same(other.next_obs, turn.next_obs) and _same(other.obs, turn.obs)
            same = same and np.array_equal(other.reward, turn.reward) and np.array_equal(other.last, turn.last)
        if not same:
            self.notes.append("the same seeds and actions lead to different steps: runs are not reproducible")

    def pictured(self, seeds: np.ndarray) -> None:
        """Steps a copy that is made for it, and asks for its picture, if it has one."""
        from purerl.hosts import moves

        batch = None
        try:
            batch = (self._host.pictured or self._host.batch)(1)
            batch.step(moves.random(self._host, np.random.default_rng(0), batch.reset(seeds)))
            if batch.frame is None:
                drawn = any(is_picture(leaf.shape) for leaf in self._leaves)
                how = "draws what its agent sees, because it draws no pictures" if drawn else "cannot render it"
                self.notes.append(f"purerl render {how}")
                return
            picture = batch.frame(0)
        except ConfigError as error:
            self.notes.append(str(error))
            return
        finally:
            if batch is not None:
                batch.close()
        if not (isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.shape[2:] == (3,)):
            self._problem(f"frame: is {_kind(picture)}, must be uint8 [height, width, 3]")

    def final_notes(self, num_steps: int, num_envs: int) -> list[str]:
        """Returns the notes, with those of the whole play, and adds its problems."""
        ends = self.terminated + self.truncated
        if self._ends and self._like_first == self._ends:
            line = "where an episode ended next_obs was always the first observation of the next"
            if self._ends > 1 and not any("every episode begins" in note for note in self.notes):
                self._problem(f"step: {line}; must be the observation after the last action")
            else:
                self.notes.append(f"{line}: cannot check that it is the true last observation")
        if not ends:
            self.notes.append("no episode ended, so episode ends were not checked; increase --steps")
        elif self._ends >= num_steps * num_envs:
            self.notes.append("every step ended an episode, so no other steps were checked")
        elif not self.terminated or not self.truncated:
            self.notes.append(f"no episode was {'truncated' if self.terminated else 'terminated'}")
        return self.notes

    def _problem(self, line: str) -> None:
        """Notes a problem, the first time that it is met."""
        name = line.partition(", first at")[0]
        if not any(each.partition(", first at")[0] == name for each in self.problems):
            self.problems[line] = None

    def _observations(self, obs: Any, name: str, at: str = "") -> None:
        """Checks observations."""
        at = f", {at}" if at else ""
        try:
            sound_obs(obs, self._like)
        except InvalidData as error:
            self._problem(f"{name}: {error}{at}")
            self.broken = True
            return
        for leaf, bounds, x, like in zip(self._leaves, self._bounds, obs, self._like, strict=False):
            path = "".join(f"[{key!r}]" for key in leaf.path)
            if x.dtype != like.dtype:
                self._problem(f"{name}{path}: is {x.dtype}, its space has {like.dtype}{at}")
            low, high = bounds
            below, above = x < low - _ROUNDING * (1 + np.abs(low)), x > high + _ROUNDING * (1 + np.abs(high))
            if (below | above).any():
                worst = x[tuple(np.argwhere(below | above)[0])]
                self._problem(f"{name}{path}: leaves observation_space{at} (found {worst:.6g})")
        self._masked(obs, name, at)

    def _masked(self, obs: Leaves, name: str, at: str) -> None:
        """Checks the mask of legal actions."""
        from purerl.hosts import leaves

        if self._host.legal is None:
            return
        mask = obs[[leaf.path for leaf in self._leaves].index((self._host.legal,))]
        sizes = leaves.choices(self._host.action_space)
        if mask.shape[-1] != sum(sizes):
            self._problem(
                f"{name}[{self._host.legal!r}]: has {mask.shape[-1]} elements, there are {sum(sizes)} actions"
            )
            self.broken = True
        elif not all(part.astype(bool).any(axis=-1).all() for part in np.split(mask, np.cumsum(sizes)[:-1], axis=-1)):
            self._problem(f"{name}[{self._host.legal!r}]: no action is legal{at}")
            self.broken = True


def _bounds(space: Any) -> tuple[Any, Any]:
    if hasattr(space, "low"):
        return np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    return (0, space.nvec - 1) if hasattr(space, "nvec") else (0, space.n - 1)


def _at(space: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        space = space[key]
    return space


def _row(obs: Leaves, i: int) -> Leaves:
    return tuple(x[i] for x in obs)


def _same(one: Leaves, other: Leaves) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def _kind(x: Any) -> str:
    return f"{x.dtype} {list(x.shape)}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
