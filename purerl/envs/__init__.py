"""Environments by name: native ones, all of gymnax, brax's tasks, and probes for tests of algorithms."""

import inspect
from typing import Any

from purerl.envs import wrappers
from purerl.envs.adapters.brax import from_brax, make_brax
from purerl.envs.adapters.gymnax import from_gymnax, make_gymnax
from purerl.envs.check_env import check_env
from purerl.envs.episodic import EpisodeState, box, episodic
from purerl.envs.names import BACKENDS, BRAX, GYMNAX, check_parameters
from purerl.envs.native.acrobot import acrobot
from purerl.envs.native.cartpole import cartpole
from purerl.envs.native.mountain_car import mountain_car, mountain_car_continuous
from purerl.envs.native.pendulum import pendulum
from purerl.envs.probes import PROBES
from purerl.envs.union import union
from purerl.errors import ConfigError
from purerl.names import nearest
from purerl.types import Env

__all__ = [
    "EpisodeState",
    "box",
    "check_env",
    "episodic",
    "from_brax",
    "from_gymnax",
    "make",
    "names",
    "union",
    "wrappers",
]

_NATIVE = {
    "CartPole-v1": cartpole,
    "Acrobot-v1": acrobot,
    "MountainCar-v0": mountain_car,
    "MountainCarContinuous-v0": mountain_car_continuous,
    "Pendulum-v1": pendulum,
} | {f"probe/{name}": probe for name, probe in PROBES.items()}


def make(name: str, *, show_last: int | None = None, frame_stack: int | None = None, **params: Any) -> Env:
    """The environment called ``name``, with its own parameters changed to ``params``; floats may be traced.

    ``show_last=1`` wraps it in `wrappers.show_last`, and ``frame_stack=4`` then in `wrappers.frame_stack` with so many
    frames; no environment has parameters of these names.

    A plain name is native where there is a native one and gymnax's otherwise. ``gymnax/NAME`` is always gymnax's, also
    one registered with gymnax at run time, ``brax/BACKEND/TASK`` needs the extra ``brax``, and ``probe/NAME`` is a
    probe. Raises `ConfigError` for a name or parameter that does not exist, with the nearest ones that do, and for
    wrappers that cannot be.
    """
    env = _plain(name, params)
    if show_last is not None:
        if type(show_last) is not int or show_last != 1:
            raise ConfigError(f"env = {name!r}: show_last = {show_last!r}: must be the whole number 1")
        env = wrappers.show_last(env)
    return env if frame_stack is None else wrappers.frame_stack(env, frame_stack)


def names() -> list[str]:
    """Every distinct environment that `make` knows, native ones first.

    ``gymnax/NAME`` stands here only where the plain name is native; for the rest it means the same as the plain name.
    """
    only_gymnax = [name for name in GYMNAX if name not in _NATIVE]
    shadowed = [f"gymnax/{name}" for name in GYMNAX if name in _NATIVE]
    return [*_NATIVE, *only_gymnax, *shadowed, *(f"brax/{backend}/{task}" for backend in BACKENDS for task in BRAX)]


def _plain(name: str, params: dict[str, Any]) -> Env:
    if name in _NATIVE:
        check_parameters(name, params, inspect.signature(_NATIVE[name]).parameters)
        return _NATIVE[name](**params)
    if name.startswith("brax/"):
        return make_brax(name.removeprefix("brax/"), **params)
    plain = name.removeprefix("gymnax/")
    if plain != name or plain in (*GYMNAX, "MNISTBandit-bsuite"):
        return make_gymnax(plain, **params)
    raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(name, names())}")
