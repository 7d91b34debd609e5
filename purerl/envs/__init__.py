"""Environments by name: native ones, probes, those of other libraries, and anybody's own as ``MODULE:FUNCTION``."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from purerl.catalogue import GYMNAX, NATIVE, PROBES, check_parameters, check_values, names
from purerl.envs import wrappers
from purerl.envs.adapters.brax import from_brax, make_brax
from purerl.envs.adapters.craftax import from_craftax, make_craftax
from purerl.envs.adapters.gymnax import from_gymnax, make_gymnax
from purerl.envs.adapters.jumanji import from_jumanji, make_jumanji
from purerl.envs.adapters.pgx import from_pgx, make_pgx
from purerl.envs.adapters.playground import from_playground, make_playground
from purerl.envs.adapters.xminigrid import from_xminigrid, make_xminigrid
from purerl.envs.check_env import check_env
from purerl.envs.episodic import EpisodeState, box, episodic
from purerl.envs.fleet import Fleet, fleet
from purerl.envs.union import union
from purerl.errors import ConfigError
from purerl.names import imported, nearest
from purerl.types import Env

__all__ = [
    "EpisodeState",
    "Fleet",
    "box",
    "check_env",
    "episodic",
    "fleet",
    "from_brax",
    "from_craftax",
    "from_gymnax",
    "from_jumanji",
    "from_pgx",
    "from_playground",
    "from_xminigrid",
    "make",
    "names",
    "union",
    "wrappers",
]

_EXTRAS: dict[str, Callable[..., Env]] = {
    "brax": make_brax,
    "jumanji": make_jumanji,
    "craftax": make_craftax,
    "xminigrid": make_xminigrid,
    "pgx": make_pgx,
    "playground": make_playground,
}
"""What makes an environment of each family that an extra installs, from the rest of its name and its parameters."""


def make(
    name: str,
    *,
    mask_nonfinite: int | None = None,
    show_last: int | None = None,
    frame_stack: int | None = None,
    **params: Any,
) -> Env:
    """The environment called ``name``, with its own parameters changed to ``params``; floats may be traced.

    ``mask_nonfinite=1`` wraps it in `wrappers.mask_nonfinite`, ``show_last=1`` then in `wrappers.show_last`, and
    ``frame_stack=4`` then in `wrappers.frame_stack` with so many frames; no environment has parameters of these names.

    A plain name is native where there is a native one and gymnax's otherwise. ``gymnax/NAME`` is always gymnax's, also
    one registered with gymnax at run time, and ``probe/NAME`` is a probe. ``brax/BACKEND/TASK``, ``jumanji/NAME``,
    ``craftax/NAME``, ``xminigrid/NAME``, ``pgx/NAME`` and ``playground/NAME`` need the extra of that name.
    ``MODULE:FUNCTION`` is anybody's own: what the function returns when it is called with ``params`` as keyword
    arguments. Raises `ConfigError` for a name or parameter that does not exist, with the nearest ones that do, for
    numbers that `check_values` refuses, for a function that does not return an `Env`, and for wrappers that cannot be.
    """
    check_values(name, params)
    env = _plain(name, params)
    for wrapper, given in ((wrappers.mask_nonfinite, mask_nonfinite), (wrappers.show_last, show_last)):
        if given is not None:
            if type(given) is not int or given != 1:
                raise ConfigError(f"env = {name!r}: {wrapper.__name__} = {given!r}: must be the whole number 1")
            env = wrapper(env)
    return env if frame_stack is None else wrappers.frame_stack(env, frame_stack)


def _native(name: str) -> Callable[..., Env]:
    """The function that makes the native environment or the probe called ``name``."""
    module, _, function = (NATIVE | PROBES)[name].partition(":")
    return getattr(importlib.import_module(module), function)


def _plain(name: str, params: dict[str, Any]) -> Env:
    """The environment without the wrappers that every environment can have."""
    if ":" in name:
        return _own(name, params)
    if name in NATIVE or name in PROBES:
        function = _native(name)
        check_parameters(name, params, inspect.signature(function).parameters)
        return function(**params)
    family, _, task = name.partition("/")
    if task and family in _EXTRAS:
        return _EXTRAS[family](task, **params)
    plain = name.removeprefix("gymnax/")
    if plain != name or plain in (*GYMNAX, "MNISTBandit-bsuite"):
        return make_gymnax(plain, **params)
    raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(name, names())}")


def _own(name: str, params: dict[str, Any]) -> Env:
    """What the function ``MODULE:FUNCTION`` returns."""
    function = imported("env", name)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise ConfigError(
            f"env = {name!r}: is {type(function).__name__}, must be a function that returns an Env"
        ) from None
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        check_parameters(name, params, signature.parameters)
    try:
        signature.bind(**params)
    except TypeError as error:
        given = ", ".join(params) or "no parameters"
        raise ConfigError(f"env = {name!r}: cannot be called with {given} ({error})") from None
    env = function(**params)
    if not isinstance(env, Env):
        raise ConfigError(f"env = {name!r}: returns {type(env).__name__}, must return a purerl.types.Env")
    return env
