"""Agents over several devices as a user asks for them, and as a run's description has them."""

import dataclasses
from typing import Any

from purerl.algos.algorithm import Algorithm
from purerl.curricula.settings import CurriculumSettings, is_plain
from purerl.errors import ConfigError
from purerl.population import splitting
from purerl.population.splitting import Split
from purerl.types import Env

KEYS = {"shards", "exact"}
MOST = 2**16
"""The largest number of shards of an agent."""


def split(described: dict[str, Any], devices: int = 1) -> Split:
    """Returns how the agents of a description are cut, each over ``devices`` devices."""
    return Split(described.get("shards", 1), devices, described.get("exact", False))


def described(options: Any) -> dict[str, Any]:
    """Returns the entry of a description that says how agents are cut; empty if they are not."""
    return {"shards": options.shards, "exact": options.exact} if options.shards > 1 else {}


def problems(options: Any, algorithm: Algorithm, config: Any, env: Env) -> list[str]:
    """Returns a line for each reason why agents cannot be cut as ``options`` ask.

    ``config`` must have no problem of its own.
    """
    shards, lines = options.shards, []
    if shards % options.devices_per_agent:
        setting = f"devices_per_agent = {options.devices_per_agent}"
        lines.append(f"{setting}: must divide shards = {shards}")
    if options.num_devices % options.devices_per_agent:
        lines.append(f"num_devices = {options.num_devices}: must be a multiple of devices_per_agent")
    if shards == 1:
        return lines + (["exact = True: has no effect without shards"] if options.exact else [])
    if env.host:
        return [*lines, f"shards = {shards}: the host environment {env.name} needs a single device"]
    if isinstance(config, CurriculumSettings) and not is_plain(config):
        lines.append(f"shards = {shards}: curriculum = {config.curriculum!r} is not supported with shards")
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    uneven = [name for name in splitting.SHARED_OUT if settings.get(name, 0) % shards]
    lines += [f"{name} = {settings[name]}: must be a multiple of shards = {shards}" for name in uneven]
    if uneven:
        return lines
    part = splitting.share(config, shards)
    lines += [f"shards = {shards}: in one of them {line}" for line in algorithm.problems(part, env)]
    if not lines and algorithm.make_learner(part, env).rows is not None:
        lines.append(f"shards = {shards}: cannot be combined with past selves or a league")
    return lines


def problems_of_file(described: dict[str, Any]) -> list[str]:
    """Returns a line if a file's entry of the shards of an agent has a fault."""
    shards = described.get("shards")
    sound = set(described) == KEYS and type(shards) is int and 1 < shards <= MOST and type(described["exact"]) is bool
    return [] if not described or sound else ["split: must have a number of shards, at least 2, and exact"]


def options(described: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns the options that a description in a file stands for.

    Raises:
        ConfigError: If the description has a fault; each line begins with ``source``.
    """
    if lines := problems_of_file(described):
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines))
    return described
