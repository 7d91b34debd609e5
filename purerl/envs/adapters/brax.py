"""Adapter of brax environments to `Env`. brax (the extra ``purerl[brax]``) is imported on first use."""

from typing import Any

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.physics import simulated
from purerl.types import Env


def make_brax(task: str, **params: Any) -> Env:
    """The brax task ``BACKEND/TASK``, for example ``spring/reacher``; ``params`` are passed to `from_brax`.

    Raises `ConfigError` for an unknown name or parameter, and if brax is not installed.
    """
    name = f"brax/{task}"
    check_parameters(name, params, ("max_steps", "action_repeat", "reset_pool"))
    with library("brax", task):
        from brax import envs

        backend, _, plain = task.partition("/")
        environment = envs.get_environment(plain, backend=backend)
    return from_brax(name, environment, **params)


def from_brax(
    name: str, environment: Any, *, max_steps: int = 1000, action_repeat: int = 1, reset_pool: int = 0
) -> Env:
    """Adapts a brax environment without wrappers. Actions ``[A]`` are clipped to [-1, 1].

    - ``name``: the name of the `Env`.
    - ``environment``: a ``brax.envs.Env``.
    - ``max_steps``: steps after which an episode is truncated; it terminates where brax reports ``done``.
    - ``action_repeat``: how often a step repeats its action, summing rewards, up to the end of the episode.
    - ``reset_pool``: 0: each episode begins in a new random state, which is computed at every step, needed or not.
      Otherwise: each begins in a random one of this many states, which are drawn once and are the same in all runs.

    The noise of a step is a key, or an index (int32) into the pool. ``next_obs`` is the true next observation. Raises
    `ConfigError` for numbers that are too small.
    """
    return simulated(name, environment, max_steps=max_steps, action_repeat=action_repeat, reset_pool=reset_pool)
