"""Environments of the host by name: Gymnasium's, EnvPool's, PettingZoo's, and a user's own as ``MODULE:FUNCTION``."""

from typing import Any

from purerl.errors import ConfigError
from purerl.hosts.bundle import HostEnv
from purerl.hosts.libraries import MODULES, needs, opened
from purerl.hosts.own import arguments, is_environment, own, parameters
from purerl.hosts.rows import Source, host_env
from purerl.hosts.transforms import TRANSFORMS, chosen
from purerl.names import imported

__all__ = ["TRANSFORMS", "arguments", "is_environment", "is_host", "listed", "make"]


def is_host(name: str) -> bool:
    """Returns whether ``name`` is of a family of environments of the host."""
    family, _, task = name.partition("/")
    return bool(task) and family in MODULES


def make(name: str, params: dict[str, Any]) -> HostEnv:
    """Makes the environment of the host called ``name``, with its own parameters changed to ``params``.

    ``gymnasium/TASK`` is registered with Gymnasium, ``envpool/TASK`` and ``pettingzoo/GROUP.MODULE`` are of these
    libraries, and ``MODULE:FUNCTION`` is what the function returns (`purerl.hosts.own`). Each also has as parameters
    the `TRANSFORMS`, unless the function has a parameter of that name itself.

    Raises:
        ConfigError: If something does not exist, with the nearest names, or is not installed.
    """
    declared: tuple[str, ...] = parameters(imported("env", name)) if not is_host(name) else ()
    transforms = {each: value for each, value in params.items() if each in TRANSFORMS and each not in declared}
    rest = {each: value for each, value in params.items() if each not in transforms}
    source = _source(name, rest) if is_host(name) else own(name, rest)
    if not isinstance(source, HostEnv):
        return host_env(source, chosen(source, transforms))
    given = [each for each, value in transforms.items() if value is not None]
    if given:
        raise ConfigError(f"env = {name!r}: returns a HostEnv; {given[0]} must be a parameter of the function")
    return source


def listed(family: str) -> list[str]:
    """Returns the names of a family's environments. Raises `ConfigError` if its library is not installed."""
    needs(f"family = {family!r}", family)
    if family == "gymnasium":
        from purerl.hosts import gymnasium

        tasks = gymnasium.latest()
    elif family == "envpool":
        tasks = sorted(opened("envpool").list_all_envs())
    else:
        from purerl.hosts import pettingzoo

        tasks = list(pettingzoo.tasks())
    return [f"{family}/{task}" for task in tasks]


def _source(name: str, params: dict[str, Any]) -> Source:
    family, _, task = name.partition("/")
    needs(f"env = {name!r}", family)
    if family == "gymnasium":
        from purerl.hosts import gymnasium

        return gymnasium.registered(name, task, params)
    if family == "envpool":
        from purerl.hosts import envpool

        return envpool.named(name, task, params)
    from purerl.hosts import pettingzoo

    return pettingzoo.named(name, task, params)
