"""Adapter of MuJoCo Playground to `Env`. It (the extra ``purerl[playground]``) is imported on first use."""

from typing import Any

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.physics import simulated
from purerl.errors import ConfigError
from purerl.types import Env

IMPLEMENTATIONS = "jax", "warp"
"""What computes the physics: JAX anywhere, or NVIDIA's warp, which is made for GPUs."""
POLICY, CRITIC = "state", "privileged_state"
"""Playground's names of what a policy and what a critic sees, where they see different things."""


def make_playground(task: str, *, impl: str = "jax", **params: Any) -> Env:
    """Makes the task of MuJoCo Playground, for example ``CartpoleBalance``.

    ``params`` are passed to `from_playground`. ``impl`` is one of `IMPLEMENTATIONS`. ``max_steps`` is the length of an
    episode in the task's own config unless it is given.

    Raises:
        ConfigError: If the name or a parameter is unknown, or Playground is not installed.
    """
    name = f"playground/{task}"
    check_parameters(name, params, ("impl", "max_steps", "action_repeat"))
    if impl not in IMPLEMENTATIONS:
        raise ConfigError(f"env = {name!r}: impl = {impl!r}: must be one of {', '.join(IMPLEMENTATIONS)}")
    with library("playground", task):
        from mujoco_playground import registry

        length = registry.get_default_config(task).episode_length
        environment = registry.load(task, config_overrides={"impl": impl})
    return from_playground(name, environment, **{"max_steps": length} | params)


def from_playground(name: str, environment: Any, *, max_steps: int = 1000, action_repeat: int = 1) -> Env:
    """Adapts an environment of MuJoCo Playground without wrappers, a ``mujoco_playground.MjxEnv``.

    Its observations are an array or a tree of them. Of ``{"state", "privileged_state"}`` the first is what a policy may
    see (`Env.own`) and the second what is for critics (`Env.state`). For the rest, and for what is raised, see
    `from_brax`.
    """
    env = simulated(name, environment, max_steps=max_steps, action_repeat=action_repeat)
    if not isinstance(env.observation_space, dict) or set(env.observation_space) != {POLICY, CRITIC}:
        return env
    return env._replace(own=lambda obs: obs[POLICY], state=lambda obs: obs[CRITIC])
