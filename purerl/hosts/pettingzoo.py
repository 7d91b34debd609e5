"""Parallel environments of PettingZoo as environments of several agents."""

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from purerl.errors import RAISED, ConfigError
from purerl.hosts import leaves, protocol
from purerl.hosts.bundle import Leaves
from purerl.hosts.copies import Copies, plan
from purerl.hosts.drawing import drawn
from purerl.hosts.leaves import MASK
from purerl.hosts.libraries import not_made, opened, quiet
from purerl.hosts.rows import Ends, Rows, Source, Which
from purerl.hosts.singles import mask_of, numbers, observed, picture
from purerl.hosts.sound import InvalidData
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

    An agent that has ended, or has not come yet, has its last observation or zeros, and its actions are ignored. The
    game is over when no agent is left. With several agents observations have the leaf of `HostEnv.seats`, and the
    entry ``zero_sum`` of the environment's ``metadata`` says whether it is a zero-sum game.

    Raises:
        ConfigError: If agents have different spaces.
    """
    copies = Copies(name, drawn(make, creator))
    looked = copies.look(plan().pictures, made=made)
    agents, metadata = list(looked.possible_agents), looked.metadata or {}
    first = agents[0]
    space, action_space = looked.observation_space(first), looked.action_space(first)
    for other in agents[1:]:
        if looked.observation_space(other) != space or looked.action_space(other) != action_space:
            raise ConfigError(
                f"env = {name!r}: {first} and {other} have different spaces, must have the same; pad them with"
                " supersuit's pad_observations_v0 and pad_action_space_v0"
            )
    try:
        given = {"seed": 0} if "seed" in protocol.parameters(looked.reset)[0] else {}
        info = _begun(looked, looked.reset(**given))[1] or {}
    except InvalidData as error:
        raise ConfigError(f"env = {name!r}: {error}") from None
    masked = any(MASK in (told or {}) for told in info.values())
    space = observed(space, action_space, masked)

    def rows(num_envs: int, pictures: bool = False) -> Rows:
        build = lambda envs: _rows(envs, agents, space, action_space, masked)
        opened: Rows = copies.rows(build, num_envs, pictures)
        return opened

    return Source(
        **leaves.fields(name, space, action_space),
        rows=rows,
        num_agents=len(agents),
        seats=len(agents) > 1,
        fps=float(metadata.get("render_fps") or 30),
        zero_sum=len(agents) > 1 and bool(metadata.get("zero_sum")),
        copies=copies,
    )


def _rows(envs: Sequence[Any], agents: list[Any], space: Any, action_space: Any, masked: bool) -> Rows:
    count = len(agents)
    gather, code = leaves.gatherer(space, count), leaves.coder(action_space, "action_space")
    lead = (count,) if count > 1 else ()
    seeds: list[int | None] = [None] * len(envs)
    views: list[dict[Any, Any]] = [{} for _ in envs]
    there: list[set[Any]] = [set() for _ in envs]
    nothing, legal = _nothing(space), int(space[MASK].shape[0]) if masked else 0
    takes = [protocol.parameters(env.reset)[0] for env in envs]

    def seed(given: np.ndarray) -> None:
        seeds[:] = given.tolist()

    def begin(which: Which) -> Leaves:
        at = range(len(envs)) if which is None else which
        for row, i in enumerate(at):
            given = {"seed": seeds[i]} if "seed" in takes[i] else {}
            if not given and seeds[i] is not None:
                protocol.seeded(envs[i], seeds[i] or 0)
            obs, info = _begun(envs[i], envs[i].reset(**given), row)
            seeds[i], there[i], views[i] = None, set(envs[i].agents), dict.fromkeys(agents, nothing)
            views[i] |= viewed(envs[i], "reset", obs, info, row)
        return shown(at)

    def step(action: np.ndarray, which: Which) -> Ends:
        at = range(len(envs)) if which is None else which
        action = np.asarray(action)
        each = iter(code.separate(code.decode(action.reshape(-1, *action.shape[len(lead) + 1 :]))))
        paid, infos = list[Any](), list[list[Any]]()
        ends = np.zeros((2, len(at), count), bool)
        for row, i in enumerate(at):
            env, chosen = envs[i], {agent: next(each) for agent in agents}
            obs, reward, ended, cut, info = _stepped(env, env.step({agent: chosen[agent] for agent in env.agents}), row)
            views[i] |= viewed(env, "step", obs, info, row)
            paid += [reward.get(agent, 0.0) for agent in agents]
            infos.append([(info or {}).get(agent) for agent in agents])
            was, over = there[i], {agent for agent in agents if ended.get(agent) or cut.get(agent)}
            there[i] = set(env.agents) - over
            for j, agent in enumerate(agents):
                if agent in was and (agent in over or not there[i]):
                    ends[0 if ended.get(agent) else 1, row, j] = True
                elif not there[i]:  # all are flagged where the game is over
                    ends[0, row, j] = True
        reward = numbers(paid, count).reshape(len(at), *lead)
        told = (lambda row: infos[row]) if lead else (lambda row: infos[row][0])
        terminated, truncated = ends.reshape(2, len(at), *lead)
        return Ends(shown(at), reward, terminated, truncated, told)

    def viewed(env: Any, method: str, obs: dict[Any, Any], info: Any, row: int) -> dict[Any, Any]:
        """Returns what agents see; with a mask in ``info``, which may be missing where an agent has ended."""
        if unknown := [agent for agent in obs if agent not in agents]:
            raise InvalidData(
                f"{protocol.where(env, method)} has an agent {unknown[0]!r}, which is not among possible_agents", row
            )
        if not masked:
            return obs
        result = {}
        for agent, x in obs.items():
            told = (info or {}).get(agent) or {}
            if MASK not in told and agent in env.agents:
                raise InvalidData(
                    f"the info of {protocol.where(env, method)} has no {MASK!r} for {agent!r}, which the first one had",
                    row,
                )
            mask = mask_of(told[MASK], legal, row) if MASK in told else np.ones(legal, np.int8)
            result[agent] = {"obs": x, MASK: mask}
        return result

    def shown(at: Sequence[int] | np.ndarray) -> Leaves:
        flat = gather([views[i][agent] for i in at for agent in agents])
        seen = tuple(x.reshape(len(at), *lead, *x.shape[1:]) for x in flat)
        return (*seen, np.array([[agent in there[i] for agent in agents] for i in at], bool)) if lead else seen

    def close() -> None:
        for env in envs:
            env.close()

    draws = getattr(envs[0], "render_mode", None) == "rgb_array"
    return Rows(len(envs), seed, begin, step, close, picture(lambda i: envs[i].render()) if draws else None)


def _begun(env: Any, result: Any, row: int | None = None) -> tuple[dict[Any, Any], Any]:
    """Returns the observations and the info of a reset, which an older one does not return."""
    if isinstance(result, dict):
        return result, {}
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], dict):
        return result
    raise InvalidData(f"{protocol.where(env, 'reset')} must return (observations, infos), dictionaries by agent", row)


def _stepped(env: Any, result: Any, row: int) -> tuple[Any, ...]:
    """Returns the five dictionaries of a step, of which an older one has ends of one kind."""
    if isinstance(result, tuple) and len(result) == 4 and isinstance(result[2], dict):
        return (*result[:3], {}, result[3])
    if isinstance(result, tuple) and len(result) == 5 and all(isinstance(part, dict) for part in result[:4]):
        return result
    raise InvalidData(
        f"{protocol.where(env, 'step')} must return (observations, rewards, terminations, truncations, infos),"
        " dictionaries by agent",
        row,
    )


def _nothing(space: Any) -> Any:
    """Returns what an agent sees that has not come yet: zeros, or what is next to them in ``space``; all is legal."""
    if isinstance(space, spaces.Dict):
        parts = {key: _nothing(part) for key, part in space.spaces.items()}
        return {**parts, MASK: np.ones_like(parts[MASK])} if MASK in parts else parts
    if isinstance(space, spaces.Tuple):
        return tuple(_nothing(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    start: Any = getattr(space, "start", 0)
    return np.zeros(space.shape or (), np.int64) + start
