"""Environments of Gymnasium: registered ones, and those that a function of anybody's own makes."""

from collections.abc import Callable
from typing import Any

import gymnasium

from purerl.errors import RAISED, ConfigError, told
from purerl.hosts import leaves
from purerl.hosts.bundle import HostEnv
from purerl.hosts.libraries import quiet
from purerl.hosts.rows import Rows
from purerl.hosts.singles import MASK, observed, serial
from purerl.names import nearest

Built = Callable[[Callable[[int], Rows]], Callable[[int], Any]]
"""Puts transforms around what makes rows, and makes batches of that."""


def registered(name: str, task: str, params: dict[str, Any], built: Built) -> HostEnv:
    """The environment that is registered as ``task``, whose parameters are those of ``gymnasium.make``."""
    known = sorted(gymnasium.registry)
    if ":" not in task and task not in known:
        raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(task, known)}")

    def make(**more: Any) -> Any:
        try:
            with quiet():
                return gymnasium.make(task, disable_env_checker=True, **params, **more)
        except RAISED as error:
            raise ConfigError(f"env = {name!r}: cannot be made: {told(error)}") from error

    return single(name, make, built)


def single(name: str, make: Callable[..., Any], built: Built) -> HostEnv:
    """The host environment of which ``make()`` makes a copy, and ``make(render_mode="rgb_array")`` one that draws."""
    probe = make()
    try:
        draws = "rgb_array" in probe.metadata.get("render_modes", ())
        observation_space, action_space = probe.observation_space, probe.action_space
        obs, info = probe.reset(seed=0)
    finally:
        probe.close()
    masked = isinstance(info, dict) and MASK in info
    space = observed(observation_space, action_space, masked)
    legal = MASK if isinstance(space, gymnasium.spaces.Dict) and MASK in space.spaces else None

    def rows(num_envs: int) -> Rows:
        copies = [make(render_mode="rgb_array") if draws else make() for _ in range(num_envs)]
        return serial(copies, masked, draws)

    return HostEnv(
        name,
        leaves.plain(space, f"env = {name!r}: observation_space"),
        leaves.coder(action_space, f"env = {name!r}: action_space").space,
        built(rows),
        legal=legal,
        fps=float(probe.metadata.get("render_fps", 30)),
    )
