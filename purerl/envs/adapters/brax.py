"""Adapter of brax environments to `Env`. brax (the extra ``purerl[brax]``) is imported on first use."""

from typing import Any

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.physics import simulated
from purerl.types import Env


def make_brax(task: str, **params: Any) -> Env:
    """Makes the brax task ``BACKEND/TASK``, for example ``spring/reacher``; ``params`` are passed to `from_brax`.

    Raises:
        ConfigError: If the name or a parameter is unknown, or brax is not installed.
    """
    name = f"brax/{task}"
    check_parameters(name, params, ("max_steps", "action_repeat"))
    with library("brax", task):
        from brax import envs

        backend, _, plain = task.partition("/")
        environment = envs.get_environment(plain, backend=backend)
    return from_brax(name, environment, **params)


def from_brax(name: str, environment: Any, *, max_steps: int = 1000, action_repeat: int = 1) -> Env:
    """Adapts a brax environment without wrappers. Actions ``[A]`` are clipped to [-1, 1].

    A level is a key, and steps are deterministic. First states are computed where episodes ended (``few``).

    Args:
        name: The name of the `Env`.
        environment: A ``brax.envs.Env``.
        max_steps: Steps after which an episode is truncated; it terminates where brax reports ``done``.
        action_repeat: How often a step repeats its action, summing rewards, up to the end of the episode.

    Raises:
        ConfigError: If a number is too small.
    """
    return simulated(name, environment, max_steps=max_steps, action_repeat=action_repeat)
