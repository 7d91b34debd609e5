"""Environments by name: native ones, probes, those of other libraries, and a user's own as ``MODULE:FUNCTION``."""

import functools
import importlib
import inspect
from collections.abc import Callable, Collection
from typing import Any

from purerl.catalogue import GYMNAX, HELD_OUT, NATIVE, PROBES, check_parameters, check_values, fitted, names
from purerl.envs import wrappers
from purerl.envs.adapters.brax import from_brax, make_brax
from purerl.envs.adapters.craftax import from_craftax, make_craftax
from purerl.envs.adapters.gymnax import from_gymnax, make_gymnax
from purerl.envs.adapters.jaxmarl import from_jaxmarl, make_jaxmarl
from purerl.envs.adapters.jumanji import from_jumanji, make_jumanji
from purerl.envs.adapters.pgx import from_pgx, make_pgx
from purerl.envs.adapters.playground import from_playground, make_playground
from purerl.envs.adapters.xminigrid import from_xminigrid, make_xminigrid
from purerl.envs.check_env import check_env
from purerl.envs.episodic import EpisodeState, box, episodic
from purerl.envs.fleet import Fleet, fleet
from purerl.envs.hosted import ON_HOST, from_host, make_hosted
from purerl.envs.union import union
from purerl.errors import ConfigError
from purerl.hosts import atari, copies, making, own
from purerl.hosts.bundle import HostEnv
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
    "from_host",
    "from_jaxmarl",
    "from_jumanji",
    "from_pgx",
    "from_playground",
    "from_xminigrid",
    "held_out",
    "make",
    "names",
    "union",
    "wrappers",
]

_EXTRAS: dict[str, tuple[Callable[..., Env], Callable[..., Env]]] = {
    "brax": (make_brax, from_brax),
    "jumanji": (make_jumanji, from_jumanji),
    "craftax": (make_craftax, from_craftax),
    "xminigrid": (make_xminigrid, from_xminigrid),
    "pgx": (make_pgx, from_pgx),
    "playground": (make_playground, from_playground),
    "jaxmarl": (make_jaxmarl, from_jaxmarl),
}
"""For each family that an extra installs: the function that makes an environment, and the one that adapts it.

The first takes the rest of the environment's name and its parameters.
"""


def make(name: Any, /, **params: Any) -> Env:
    """Makes the environment called ``name``, with its own parameters changed to ``params``; floats may be traced.

    ``name`` may also be what makes the environment: a class, a function, or a specification of Gymnasium's
    (``gymnasium.spec``). Names are looked up at each call, so a class that was defined anew is the one that is made.

    A plain name is native where there is a native one and gymnax's otherwise. ``gymnax/NAME`` is always gymnax's, also
    one registered with gymnax at run time, and ``probe/NAME`` is a probe. ``brax/BACKEND/TASK``, ``jumanji/NAME``,
    ``craftax/NAME``, ``xminigrid/NAME``, ``pgx/NAME``, ``playground/NAME`` and ``jaxmarl/NAME`` need the extra of that
    name. ``MODULE:FUNCTION`` is a user's own: what the function returns when it is called with ``params`` as keyword
    arguments. ``gymnasium/NAME``, ``envpool/NAME`` and ``pettingzoo/NAME`` step on the host (`purerl.hosts`), and so
    does an environment of these libraries that a function returns.

    Every environment also has the transforms of `purerl.envs.wrappers` as parameters. They are put around it in this
    order, whatever the order of ``params``, the first one innermost; None leaves one out:

    - ``randomise="length:0.4:0.6,mass:0.8:1.2"``: each episode draws these parameters of the environment anew.
    - ``resets="pool:256"``: how a fleet begins episodes (`purerl.envs.resets`).
    - ``mask_nonfinite=1``: a step with an observation or a reward that is not finite ends the episode.
    - ``sticky_actions=0.25``: the last action is repeated with this probability; may be traced.
    - ``action_repeat=4``: an action is executed so often, and its rewards are summed. A repetition may stick.
    - ``max_episode_steps=100``: truncates after so many steps, each of which is ``action_repeat`` executions.
    - ``reward_scale=0.1``, then ``reward_clip=1``: may be traced.
    - ``flatten=1``: observations become one float32 vector.
    - ``observation_mask="1,3"``: these elements of the vector are hidden.
    - ``show_last=1``: the last action and reward are observed.
    - ``frame_stack=4``: so many observations are stacked.

    Where an environment has a parameter of such a name itself, as tasks of brax have ``action_repeat``, the parameter
    is its own. An environment of the host begins its episodes itself: it has neither ``randomise`` nor ``resets``.

    Raises:
        ConfigError: If a name or parameter does not exist, with the nearest ones that do, if `check_values` refuses a
            number, if a function does not return an `Env`, or if a transform cannot be put around the environment.
    """
    with copies.remembering():
        return _made(name if isinstance(name, str) else making.named(name), params)


def _made(name: str, params: dict[str, Any]) -> Env:
    """Makes the environment for `make`."""
    check_values(name, params)
    params = atari.settings(name, params) if making.is_host(name) else params
    declared = _declared(name)
    reserved = [each for each in ("randomise", *wrappers.TRANSFORMS) if each not in declared]
    given = {each: params[each] for each in reserved if params.get(each) is not None}
    plain = {each: value for each, value in params.items() if each not in reserved}
    ranges = given.pop("randomise", None)
    if ranges is not None and making.is_host(name):
        raise ConfigError(f"env = {name!r}: randomise = {ranges!r}: is not supported for host environments")
    if making.is_host(name):  # with what the host does at once, so that no copy is made without
        plain |= {each: given.pop(each) for each in (*ON_HOST, "resets") if each in given}
    make_plain = functools.partial(_plain_with, name, plain)
    env = make_plain() if ranges is None else wrappers.randomise(name, make_plain, ranges)
    if env.host and (on_host := {each: given.pop(each) for each in (*ON_HOST, "resets") if each in given}):
        env = make_hosted(name, plain | on_host)
    for transform, value in given.items():
        env = wrappers.TRANSFORMS[transform](env, value)
    return env


def with_levels(env: Env) -> str:
    """Returns advice for an environment that has no levels to choose from.

    It says how to have parameters drawn, with one of the environment's own as an example.
    """
    given = inspect.signature(_native(env.name)).parameters.values() if env.name in NATIVE else []
    floats = [each for each in given if isinstance(each.default, float) and each.default > 0]
    drawn = f"{floats[0].name}:{floats[0].default / 2:g}:{floats[0].default * 2:g}" if floats else "NAME:LOW:HIGH"
    return f"give parameters to be drawn, as in --env-params randomise={drawn}"


def held_out(name: str) -> dict[str, Any]:
    """Returns levels of the environment called ``name`` that no training uses, by their names.

    Raises:
        ConfigError: If there are none.
    """
    if name not in HELD_OUT:
        raise ConfigError(f"env = {name!r}: has no held-out levels; these have: {', '.join(HELD_OUT)}")
    module, _, function = HELD_OUT[name].partition(":")
    levels: dict[str, Any] = getattr(importlib.import_module(module), function)()
    return levels


def _is_own(name: str) -> bool:
    """Returns whether ``name`` is that of a user's own class or function."""
    return ":" in name and not making.is_host(name)


def _declared(name: str) -> Collection[str]:
    """Returns the parameters of a user's own function, or of an environment of a library that is an extra."""
    family = name.partition("/")[0]
    functions = [imported("env", name)] if _is_own(name) else list(_EXTRAS.get(family, ()))[1:]
    try:
        return [parameter for function in functions for parameter in inspect.signature(function).parameters]
    except (TypeError, ValueError):  # `_own` reports the error
        return ()


def _plain_with(name: str, params: dict[str, Any], /, **drawn: Any) -> Env:
    """Makes the plain environment with ``params`` and drawn ones. Raises `ConfigError` for a parameter that is both."""
    both = [f"env = {name!r}: {each} is given as a number and drawn by randomise" for each in drawn if each in params]
    if both:
        raise ConfigError("\n".join(both))
    check_values(name, drawn)
    return _plain(name, params | drawn)


def _native(name: str) -> Callable[..., Env]:
    """Returns the function that makes the native environment or the probe called ``name``."""
    module, _, function = (NATIVE | PROBES)[name].partition(":")
    return getattr(importlib.import_module(module), function)


def _plain(name: str, params: dict[str, Any]) -> Env:
    """Makes the environment without the transforms that every environment can have."""
    if _is_own(name):
        return _own(name, params)
    if name in NATIVE or name in PROBES:
        function = _native(name)
        own = inspect.signature(function).parameters
        check_parameters(name, params, own)
        return function(**fitted(name, params, {each: own[each].default for each in params}))
    family, _, task = name.partition("/")
    if task and family in _EXTRAS:
        return _EXTRAS[family][0](task, **params)
    if making.is_host(name):
        return make_hosted(name, params)
    plain = name.removeprefix("gymnax/")
    if plain != name or plain in (*GYMNAX, "MNISTBandit-bsuite"):
        return make_gymnax(plain, **params)
    raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(name, names())}")


def _own(name: str, params: dict[str, Any]) -> Env:
    """Returns the environment that the function ``MODULE:FUNCTION`` makes."""
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
        signature.bind(**own.arguments(function, params))
    except TypeError as error:
        given = ", ".join(params) or "no parameters"
        raise ConfigError(f"env = {name!r}: cannot be called with {given} ({error})") from None
    if making.is_known(function):
        return make_hosted(name, params)
    env = making.found(name, params)
    if isinstance(env, HostEnv):
        return make_hosted(name, params)
    if not isinstance(env, Env):
        raise ConfigError(
            f"env = {name!r}: returns {type(env).__name__}, must return a purerl.types.Env, or an environment of "
            f"Gymnasium or PettingZoo{own.no_environment(env)}"
        )
    return env
