"""Parallel environments of PettingZoo as environments of several agents."""

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.errors import RAISED, ConfigError
from purerl.hosts import leaves
from purerl.hosts.bundle import Leaves
from purerl.hosts.copies import Copies, plan
from purerl.hosts.drawing import drawn
from purerl.hosts.leaves import MASK
from purerl.hosts.libraries import not_made, opened, quiet
from purerl.hosts.rows import Ends, Rows, Source, Which
from purerl.hosts.singles import observed, picture
from purerl.names import nearest


def named(name: str, task: str, params: dict[str, Any]) -> Source:
    """Returns the parallel environment ``GROUP.MODULE`` below pettingzoo, such as ``sisl.pursuit_v4``.

    The group ``mpe`` is the package mpe2. ``params`` are those of the module's ``parallel_env``.
    """
    known = tasks()
    if task not in known:
        raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(task, known)}")

    def make(**more: Any) -> Any:
        try:
            with quiet():
                module = opened(known[task])
                return module.parallel_env(**params, **more)
        except AttributeError:
            raise ConfigError(
                f"env = {name!r}: has no parallel_env: its agents act in turns, which is not supported"
            ) from None
        except RAISED as error:
            raise not_made(name, error) from error

    return parallel(name, make, getattr(opened(known[task]), "parallel_env", None))


def tasks() -> dict[str, str]:
    """Returns the names of all installed environments, with their modules, which are not imported."""
    modules: dict[str, str] = {}
    for package, pattern in (("mpe2", "*.py"), ("pettingzoo", "*/*.py")):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(place).glob(pattern)):
                if re.search(r"_v\d+$", path.stem):
                    group = "mpe" if package == "mpe2" else path.parent.name
                    module = f"{package}.{path.stem}" if package == "mpe2" else f"{package}.{group}.{path.stem}"
                    modules.setdefault(f"{group}.{path.stem}", module)
    return modules


def parallel(name: str, make: Callable[..., Any], creator: Any = None, made: Any = None) -> Source:
    """Returns the environment of which ``make`` makes a copy, by calling ``creator`` (`drawn`).

    Its agents are its ``possible_agents``, in their order. ``made`` is the first copy, if it has been made already.

    An agent that leaves before the others keeps its last observation, has reward 0, and its actions are ignored. The
    episode ends for all agents at once when none is left: terminated if every agent terminated, otherwise truncated.

    Raises:
        ConfigError: If agents have different spaces.
    """
    copies = Copies(name, drawn(make, creator))
    looked = copies.look(plan().pictures, made=made)
    agents = list(looked.possible_agents)
    first = agents[0]
    space, action_space = looked.observation_space(first), looked.action_space(first)
    for other in agents[1:]:
        if looked.observation_space(other) != space or looked.action_space(other) != action_space:
            raise ConfigError(
                f"env = {name!r}: {first} and {other} have different spaces, must have the same; pad them with"
                " supersuit's pad_observations_v0 and pad_action_space_v0"
            )
    masked = MASK in looked.reset(seed=0)[1].get(first, {})
    space = observed(space, action_space, masked)

    def rows(num_envs: int, pictures: bool = False) -> Rows:
        build = lambda envs: _rows(envs, agents, space, action_space, masked)
        opened: Rows = copies.rows(build, num_envs, pictures)
        return opened

    return Source(
        **leaves.fields(name, space, action_space),
        rows=rows,
        num_agents=len(agents),
        fps=float((looked.metadata or {}).get("render_fps") or 30),
        copies=copies,
    )


def _rows(envs: Sequence[Any], agents: list[Any], space: Any, action_space: Any, masked: bool) -> Rows:
    count = len(agents)
    gather, code = leaves.gatherer(space, count), leaves.coder(action_space, "action_space")
    lead = (count,) if count > 1 else ()
    seeds: list[int | None] = [None] * len(envs)
    views: list[dict[Any, Any]] = [{} for _ in envs]
    terminated: list[dict[Any, bool]] = [{} for _ in envs]

    def seed(given: np.ndarray) -> None:
        seeds[:] = given.tolist()

    def begin(which: Which) -> Leaves:
        at = range(len(envs)) if which is None else which
        for i in at:
            obs, info = envs[i].reset(seed=seeds[i])
            seeds[i], terminated[i] = None, dict.fromkeys(agents, False)
            views[i] = _views(obs, info)
        return shown(at)

    def step(action: np.ndarray, which: Which) -> Ends:
        at = range(len(envs)) if which is None else which
        action = np.asarray(action)
        each = iter(code.separate(code.decode(action.reshape(-1, *action.shape[len(lead) + 1 :]))))
        reward, over = np.zeros((len(at), count), np.float32), np.zeros((2, len(at), 1), bool)
        for row, i in enumerate(at):
            chosen = {agent: next(each) for agent in agents}
            live = envs[i].agents
            obs, paid, ended, _, info = envs[i].step({agent: chosen[agent] for agent in live})
            views[i] |= _views(obs, info)
            terminated[i] |= ended
            reward[row] = [paid.get(agent, 0.0) for agent in agents]
            if not envs[i].agents:
                over[0 if all(terminated[i][agent] for agent in agents) else 1, row] = True
        over = np.repeat(over, count, axis=2).reshape(2, len(at), *lead)
        return Ends(shown(at), reward.reshape(len(at), *lead), *over)

    def _views(obs: dict[Any, Any], info: dict[Any, Any]) -> dict[Any, Any]:
        return {agent: {"obs": x, MASK: info[agent][MASK]} for agent, x in obs.items()} if masked else obs

    def shown(at: Sequence[int] | np.ndarray) -> Leaves:
        flat = gather([views[i][agent] for i in at for agent in agents])
        return tuple(x.reshape(len(at), *lead, *x.shape[1:]) for x in flat)

    def close() -> None:
        for env in envs:
            env.close()

    draws = getattr(envs[0], "render_mode", None) == "rgb_array"
    return Rows(len(envs), seed, begin, step, close, picture(lambda i: envs[i].render()) if draws else None)
