"""Transforms that the host does itself, because they change which actions are executed or when episodes end.

Each is ``(rows, value) -> Rows`` and means what the wrapper of its name in `purerl.envs.wrappers` does.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from purerl.errors import ConfigError
from purerl.hosts.bundle import Leaves
from purerl.hosts.rows import Ends, Rows, Source, Which, merged

_DRAWS = 1024
"""How many numbers a row draws at once."""
_SALT = 0x5713
"""Keeps the draws of `sticky_actions` from a seed apart from the environment's draws from it."""


def mask_nonfinite(rows: Rows, value: int) -> Rows:
    """Truncates episodes in which an observation or a reward is not finite.

    Reward is then 0 and the observation is the last finite one. The first observations of episodes are not checked.
    """
    shown: Leaves = ()

    def begin(which: Which) -> Leaves:
        nonlocal shown
        obs = rows.begin(which)
        shown = merged(shown, which, obs)
        return obs

    def step(action: np.ndarray, which: Which) -> Ends:
        nonlocal shown
        ends = rows.step(action, which)
        wrong = ~np.isfinite(ends.reward.reshape(len(ends.reward), -1)).all(axis=1)
        for x in ends.obs:
            if x.dtype.kind == "f":
                wrong |= ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if wrong.any():
            before = tuple(x[wrong] if which is None else x[which[wrong]] for x in shown)
            obs = merged(ends.obs, np.flatnonzero(wrong), before)
            ends = Ends(obs, ends.reward.copy(), ends.terminated.copy(), ends.truncated.copy(), ends.info)
            ends.reward[wrong], ends.terminated[wrong], ends.truncated[wrong] = 0, False, True
        shown = merged(shown, which, ends.obs)
        return ends

    return rows._replace(begin=begin, step=step)


def sticky_actions(rows: Rows, probability: float) -> Rows:
    """Repeats the last executed action instead of the given one with a ``probability`` at each step.

    Source: Machado et al. 2018, "Sticky actions". The first action of an episode is always executed. Each row draws
    from its own seed, and within `action_repeat` for each execution.
    """
    generators: dict[int, np.random.Generator] = {}
    draws, drawn = np.empty((_DRAWS, rows.size)), np.zeros(rows.size, np.int64)
    begun, executed = np.zeros(rows.size, bool), np.empty(0)
    every, given = np.arange(rows.size), np.full(rows.size, -1)

    def seed(seeds: np.ndarray) -> None:
        given[:] = seeds

    def begin(which: Which) -> Leaves:
        at = every if which is None else which
        for i in at[given[at] >= 0]:
            generators[i] = np.random.default_rng((_SALT, int(given[i])))
            drawn[i], given[i] = _DRAWS, -1
        begun[at] = False
        return rows.begin(which)

    def step(action: np.ndarray, which: Which) -> Ends:
        nonlocal executed
        at = every if which is None else which
        for i in at[drawn[at] == _DRAWS]:
            draws[:, i], drawn[i] = generators[i].random(_DRAWS), 0
        action = np.array(action)
        if executed.shape != (rows.size, *action.shape[1:]):
            executed = np.zeros((rows.size, *action.shape[1:]), action.dtype)
        repeat = (draws[drawn[at], at] < probability) & begun[at]
        drawn[at] += 1
        action[repeat] = executed[at[repeat]]
        executed[at], begun[at] = action, True
        return rows.step(action, which)

    return rows._replace(seed=seed_both(seed, rows), begin=begin, step=step)


def action_repeat(rows: Rows, times: int) -> Rows:
    """Executes each action ``times`` times, up to the end of the episode, and pays the sum of the rewards.

    Source: Mnih et al. 2015, Methods, "Training details".
    """
    every = np.arange(rows.size)

    def step(action: np.ndarray, which: Which) -> Ends:
        at = every if which is None else which
        action = np.asarray(action)
        obs, reward, terminated, truncated, info = rows.step(action, which)
        latest: list[tuple[Any, int]] = [(info, i) for i in range(len(at))]
        for _ in range(times - 1):
            going = np.flatnonzero(~(terminated | truncated))
            if not len(going):
                break
            everywhere = len(going) == len(at)
            further = rows.step(action[going], which if everywhere else at[going])
            obs = merged(obs, None if everywhere else going, further.obs)
            reward[going] += further.reward
            terminated[going], truncated[going] = further.terminated, further.truncated
            for i, row in enumerate(going):
                latest[row] = further.info, i
        return Ends(obs, reward, terminated, truncated, info and (lambda row: latest[row][0](latest[row][1])))

    return rows if times == 1 else rows._replace(step=step)


def max_episode_steps(rows: Rows, steps: int) -> Rows:
    """Truncates episodes after ``steps`` steps, unless they end earlier or that step terminates."""
    time = np.zeros(rows.size, np.int64)

    def begin(which: Which) -> Leaves:
        time[slice(None) if which is None else which] = 0
        return rows.begin(which)

    def step(action: np.ndarray, which: Which) -> Ends:
        at = slice(None) if which is None else which
        ends = rows.step(action, which)
        time[at] += 1
        return ends._replace(truncated=ends.truncated | ((time[at] >= steps) & ~ends.terminated))

    return rows._replace(begin=begin, step=step)


def seed_both(own: Callable[[np.ndarray], None], rows: Rows) -> Callable[[np.ndarray], None]:
    """Returns a function that seeds a transform and the rows within."""

    def seed(seeds: np.ndarray) -> None:
        own(seeds)
        rows.seed(seeds)

    return seed


class _Kind(NamedTuple):
    """The conditions of a transform.

    ``requirement`` and ``holds`` say which values it takes, in words and as a function. ``apart``: it steps or begins
    rows apart from others. ``would``: what it would do with an action that may be illegal (empty: nothing). ``alone``:
    it needs a single agent.
    """

    requirement: str
    holds: Callable[[Any], bool]
    apart: bool
    would: str = ""
    alone: bool = True


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


TRANSFORMS: dict[str, tuple[Callable[[Rows, Any], Rows], _Kind]] = {
    "mask_nonfinite": (
        mask_nonfinite,
        _Kind("1 or true", lambda x: type(x) in (int, bool) and x == 1, True, alone=False),
    ),
    "sticky_actions": (
        sticky_actions,
        _Kind("a number in [0, 1]", lambda x: type(x) in (int, float) and 0 <= x <= 1, False, "repeat"),
    ),
    "action_repeat": (action_repeat, _Kind("a whole number >= 1", _is_count, True, "repeat")),
    "max_episode_steps": (max_episode_steps, _Kind("a whole number >= 1", _is_count, True)),
}
"""The transforms by name, in the order in which they are put around rows: the first is the innermost."""


def chosen(source: Source, given: dict[str, Any]) -> list[Callable[[Rows], Rows]]:
    """Returns the transforms that ``given`` names, in the order of `TRANSFORMS`.

    Raises:
        ConfigError: If a value is not of its kind, or a transform cannot be put around the environment.
    """
    steps: list[Callable[[Rows], Rows]] = []
    for name, (transform, kind) in TRANSFORMS.items():
        value = given.get(name)
        if value is None:
            continue
        field = f"env = {source.name!r}: {name} = {value!r}"
        if not kind.holds(value):
            raise ConfigError(f"{field}: must be {kind.requirement}")
        if kind.would and source.legal:
            raise ConfigError(f"env = {source.name!r}: has illegal actions, which {name} would {kind.would}")
        if kind.alone and source.num_agents > 1:
            raise ConfigError(f"env = {source.name!r}: has {source.num_agents} agents; {name} needs one")
        if kind.apart and not source.apart:
            raise ConfigError(
                f"{field}: is not supported for a Gymnasium vector environment, which steps all environments together;"
                " wrap its single environments, or return a single environment"
            )
        if transform is max_episode_steps and 0 < source.limit < steps_within(given):
            raise ConfigError(
                f"{field}: has no effect, since a TimeLimit within the environment ends episodes after {source.limit}"
                " steps; make that one longer, in the function"
            )
        steps.append(functools.partial(_put, transform, value))
    return steps


def steps_within(given: dict[str, Any]) -> int:
    """Returns how many steps of the environment within an episode has by the transforms ``given``; 0: any number."""
    steps, times = (given.get(name) for name in ("max_episode_steps", "action_repeat"))
    return int(steps or 0) * (int(times or 1) if _is_count(times) else 1) if _is_count(steps) else 0


def _put(transform: Callable[[Rows, Any], Rows], value: Any, rows: Rows) -> Rows:
    return transform(rows, value)
