"""Environments that a user's own function makes; their kind is recognised by their class."""

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from purerl.catalogue import check_parameters
from purerl.errors import RAISED, ConfigError
from purerl.hosts.bundle import HostEnv
from purerl.hosts.copies import plan
from purerl.hosts.drawing import MODE, drawn
from purerl.names import called, imported


def is_environment(value: Any) -> bool:
    """Returns whether ``value`` is an environment of the host, or a function that makes one. Imports nothing.

    ``value`` is what a user's own function returned.
    """
    return isinstance(value, HostEnv | types.FunctionType | functools.partial) or any(
        _is(value, *kind) for kind in (_ENV, _VECTOR, _AGENTS)
    )


def arguments(function: Callable[..., Any], params: dict[str, Any], num_envs: int = 1) -> dict[str, Any]:
    """Returns the arguments for ``function``: ``params``, and ``num_envs`` if the function has that parameter.

    The class of a single environment has it for itself, and does not get it.
    """
    takes = "num_envs" in parameters(function) and not (inspect.isclass(function) and _is_kind(function, *_ENV))
    return {**({"num_envs": num_envs} if takes else {}), **params}


def parameters(function: Any) -> tuple[str, ...]:
    """Returns the names of the parameters of ``function``; none if they cannot be inspected."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def own(name: str, params: dict[str, Any]) -> Any:
    """Returns what the function ``MODULE:FUNCTION`` makes, called with ``params``, as a `HostEnv` or a `Source`.

    It returns an environment of Gymnasium, a vector environment of Gymnasium (and has a parameter ``num_envs``), a
    parallel environment of PettingZoo, a `HostEnv`, or a function without parameters, or with ``num_envs``, that
    returns one of them. If it takes a ``render_mode``, by name or among others, it is given "rgb_array" where pictures
    are drawn, and None elsewhere. What it returned first becomes the first copy. Anything else that it returns is
    returned as it is, called without a ``render_mode`` that it does not name.
    """
    function = imported("env", name)
    signature = inspect.signature(function).parameters
    any_other = any(each.kind is each.VAR_KEYWORD for each in signature.values())
    if not any_other:
        check_parameters(name, params, signature)

    def call(num_envs: int, **more: Any) -> Any:
        value = called("env", name, function, **(arguments(function, params, num_envs) | more))
        if isinstance(value, types.FunctionType | functools.partial):
            value = called("env", name, value, **arguments(value, {}, num_envs))
        return value

    creator = function if (any_other or MODE in signature) and MODE not in params else None

    def make(num_envs: int, pictures: bool) -> Any:
        return drawn(functools.partial(call, num_envs), creator)(pictures)

    size, pictures, *_ = plan()
    environment = make(size, pictures)
    if creator and MODE not in signature and not any(_is(environment, *kind) for kind in (_ENV, _VECTOR, _AGENTS)):
        environment = call(size)  # nothing that draws
    if _is(environment, *_VECTOR):
        from purerl.hosts.vectors import vector

        return vector(name, make, environment)
    if is_environment(environment):
        try:
            check_num_envs(name, signature, params)
        except ConfigError:
            with contextlib.suppress(*RAISED):
                environment.close()
            raise
    if _is(environment, *_AGENTS):
        from purerl.hosts.pettingzoo import parallel as one
    elif _is(environment, *_ENV):
        from purerl.hosts.gymnasium import single as one
    else:
        return environment
    return one(name, functools.partial(call, 1), creator, environment)


def no_environment(value: Any) -> str:
    """Returns what is missing if ``value`` has the methods of an environment but is none; otherwise an empty text."""
    if hasattr(value, "reset") and hasattr(value, "step"):
        return f"; the class {type(value).__name__} has reset and step, but does not inherit from gymnasium.Env"
    return ""


def check_num_envs(name: str, signature: Mapping[str, inspect.Parameter], params: dict[str, Any]) -> None:
    """Raises `ConfigError` if a function of single environments has a ``num_envs`` of its own, which is given 1."""
    own = signature.get("num_envs")
    given = own and params.get("num_envs", own.default)
    if own and given not in (own.empty, None, 1):
        raise ConfigError(
            f"env = {name!r}: num_envs = {given!r}: is the number of copies, which purerl gives to functions that"
            " return a vector environment; this one returns a single environment, so rename its parameter"
        )


_ENV, _VECTOR, _AGENTS = (
    ("gymnasium.core", "Env"),
    ("gymnasium.vector.vector_env", "VectorEnv"),
    ("pettingzoo.utils.env", "ParallelEnv"),
)


def _is(value: Any, module: str, kind: str) -> bool:
    """Returns whether ``value`` is of a class of a module that has been imported already."""
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], kind))


def _is_kind(value: type, module: str, kind: str) -> bool:
    """Returns whether a class is one of a module that has been imported already."""
    return module in sys.modules and issubclass(value, getattr(sys.modules[module], kind))
