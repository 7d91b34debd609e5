"""Adapter of MuJoCo Playground to `Env`. It (the extra ``purerl[playground]``) is imported on first use."""

from typing import Any

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.physics import simulated
from purerl.errors import ConfigError
from purerl.types import Env

IMPLEMENTATIONS = "jax", "warp"
"""What steps the physics: JAX anywhere, or NVIDIA's warp, which is made for GPUs."""


def make_playground(task: str, *, impl: str = "jax", **params: Any) -> Env:
    """The task of MuJoCo Playground, for example ``CartpoleBalance``; ``params`` are passed to `from_playground`.

    ``impl`` is one of `IMPLEMENTATIONS`. ``max_steps`` is the length of an episode in the task's own config unless it
    is given. Raises `ConfigError` for an unknown name or parameter, and if Playground is not installed.
    """
    name = f"playground/{task}"
    check_parameters(name, params, ("impl", "max_steps", "action_repeat", "reset_pool"))
    if impl not in IMPLEMENTATIONS:
        raise ConfigError(f"env = {name!r}: impl = {impl!r}: must be one of {', '.join(IMPLEMENTATIONS)}")
    with library("playground", task):
        from mujoco_playground import registry

        length = registry.get_default_config(task).episode_length
        environment = registry.load(task, config_overrides={"impl": impl})
    return from_playground(name, environment, **{"max_steps": length} | params)


def from_playground(
    name: str, environment: Any, *, max_steps: int = 1000, action_repeat: int = 1, reset_pool: int = 0
) -> Env:
    """Adapts an environment of MuJoCo Playground without wrappers. Actions ``[A]`` are clipped to [-1, 1].

    - ``name``: the name of the `Env`.
    - ``environment``: a ``mujoco_playground.MjxEnv``; its observations are an array or a tree of them.
    - ``max_steps``: steps after which an episode is truncated; it terminates where Playground reports ``done``.
    - ``action_repeat``: how often a step repeats its action, summing rewards, up to the end of the episode.
    - ``reset_pool``: 0: each episode begins in a new random state, which is computed at every step, needed or not.
      Otherwise: each begins in a random one of this many states, which are drawn once and are the same in all runs.

    The noise of a step is a key, or an index (int32) into the pool. ``next_obs`` is the true next observation. Raises
    `ConfigError` for numbers that are too small.
    """
    return simulated(name, environment, max_steps=max_steps, action_repeat=action_repeat, reset_pool=reset_pool)
