"""Environments that a user's own function makes; their kind is recognised by their class."""

import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from purerl.catalogue import check_parameters
from purerl.errors import ConfigError
from purerl.hosts.bundle import HostEnv
from purerl.hosts.rows import Source
from purerl.names import called, imported


def is_environment(value: Any) -> bool:
    """Returns whether ``value`` is an environment of the host, or a function that makes one. Imports nothing.

    ``value`` is what a user's own function returned.
    """
    return isinstance(value, HostEnv | types.FunctionType | functools.partial) or any(
        _is(value, *kind) for kind in (_ENV, _VECTOR, _AGENTS)
    )


def arguments(function: Callable[..., Any], params: dict[str, Any], num_envs: int = 1) -> dict[str, Any]:
    """Returns the arguments for ``function``: ``params``, and ``num_envs`` if the function has that parameter."""
    return {**({"num_envs": num_envs} if "num_envs" in parameters(function) else {}), **params}


def parameters(function: Any) -> tuple[str, ...]:
    """Returns the names of the parameters of ``function``; none if they cannot be inspected."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def own(name: str, params: dict[str, Any]) -> HostEnv | Source:
    """Returns the environment that the function ``MODULE:FUNCTION`` makes when it is called with ``params``.

    It returns an environment of Gymnasium, a vector environment of Gymnasium (and has a parameter ``num_envs``), a
    parallel environment of PettingZoo, a `HostEnv`, or a function without parameters, or with ``num_envs``, that
    returns one of them. If it has a parameter ``render_mode`` it is given "rgb_array".
    """
    function = imported("env", name)
    signature = inspect.signature(function).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in signature.values()):
        check_parameters(name, params, signature)

    def call(num_envs: int = 1, more: Mapping[str, Any] = MappingProxyType({})) -> Any:
        value = called("env", name, function, **(arguments(function, params, num_envs) | dict(more)))
        if isinstance(value, types.FunctionType | functools.partial):
            value = called("env", name, value, **arguments(value, {}, num_envs))
        return value

    environment = call()
    if isinstance(environment, HostEnv):
        return environment
    if not is_environment(environment):
        raise ConfigError(
            f"env = {name!r}: returns {type(environment).__name__}, must return a Gymnasium environment,"
            " a PettingZoo parallel environment or a HostEnv"
        )
    environment.close()
    if _is(environment, *_VECTOR):
        from purerl.hosts.vectors import vector

        return vector(name, call)

    def make(**more: Any) -> Any:
        return call(more={each: value for each, value in more.items() if each in signature})

    if _is(environment, *_AGENTS):
        from purerl.hosts.pettingzoo import parallel

        return parallel(name, make)
    from purerl.hosts.gymnasium import single

    return single(name, make)


_ENV, _VECTOR, _AGENTS = (
    ("gymnasium.core", "Env"),
    ("gymnasium.vector.vector_env", "VectorEnv"),
    ("pettingzoo.utils.env", "ParallelEnv"),
)


def _is(value: Any, module: str, kind: str) -> bool:
    """Returns whether ``value`` is of a class of a module that has been imported already."""
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], kind))
