"""Environments by name: native ones, all of gymnax, and probes for tests of algorithms."""

import inspect
from typing import Any

from purerl.config import ConfigError
from purerl.envs.acrobot import acrobot
from purerl.envs.cartpole import cartpole
from purerl.envs.check_env import check_env
from purerl.envs.episodic import EpisodeState, box, episodic
from purerl.envs.gymnax_adapter import from_gymnax, make_gymnax
from purerl.envs.mountain_car import mountain_car, mountain_car_continuous
from purerl.envs.names import GYMNAX, check_parameters, nearest
from purerl.envs.pendulum import pendulum
from purerl.envs.probes import PROBES
from purerl.types import Env

__all__ = ["EpisodeState", "box", "check_env", "episodic", "from_gymnax", "make", "names"]

_NATIVE = {
    "CartPole-v1": cartpole,
    "Acrobot-v1": acrobot,
    "MountainCar-v0": mountain_car,
    "MountainCarContinuous-v0": mountain_car_continuous,
    "Pendulum-v1": pendulum,
} | {f"probe/{name}": probe for name, probe in PROBES.items()}


def make(name: str, **params: Any) -> Env:
    """The environment called ``name``, with its own parameters changed to ``params``; floats may be traced.

    A plain name is native where there is a native one and gymnax's otherwise. ``gymnax/NAME`` is always gymnax's, also
    one registered with gymnax at run time, and ``probe/NAME`` is a probe. Raises `ConfigError` for a name or parameter
    that does not exist, with the nearest ones that do.
    """
    if name in _NATIVE:
        check_parameters(name, params, inspect.signature(_NATIVE[name]).parameters)
        return _NATIVE[name](**params)
    plain = name.removeprefix("gymnax/")
    if plain != name or plain in (*GYMNAX, "MNISTBandit-bsuite"):
        return make_gymnax(plain, **params)
    raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(name, names())}")


def names() -> list[str]:
    """Every distinct environment that `make` knows, native ones first.

    ``gymnax/NAME`` stands here only where the plain name is native; for the rest it means the same as the plain name.
    """
    only_gymnax = [name for name in GYMNAX if name not in _NATIVE]
    shadowed = [f"gymnax/{name}" for name in GYMNAX if name in _NATIVE]
    return [*_NATIVE, *only_gymnax, *shadowed]
