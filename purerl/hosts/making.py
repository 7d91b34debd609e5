"""Environments of the host by name: Gymnasium's, and anybody's own as ``MODULE:FUNCTION``."""

from typing import Any

from purerl.errors import ConfigError
from purerl.hosts.bundle import HostEnv
from purerl.hosts.libraries import MODULES, needs
from purerl.hosts.rows import batched


def is_host(name: str) -> bool:
    """Whether ``name`` is of a family whose environments are of the host."""
    family, _, task = name.partition("/")
    return bool(task) and family in MODULES and ":" not in family


def make(name: str, params: dict[str, Any]) -> HostEnv:
    """The environment of the host called ``name``, with its own parameters changed to ``params``."""
    family, _, task = name.partition("/")
    if not is_host(name):
        raise ConfigError(f"env = {name!r}: is no environment of the host")
    needs(name, family)
    from purerl.hosts import gymnasium

    return gymnasium.registered(name, task, params, lambda rows: lambda num_envs: batched(rows(num_envs)))
