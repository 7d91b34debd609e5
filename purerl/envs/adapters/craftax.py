"""Adapter of Craftax to `Env`. Craftax (the extra ``purerl[craftax]``) is imported on first use."""

import dataclasses
from typing import Any

import jax
import numpy as np

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.stepping import Consequence, episodes
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, PyTree

NEVER = np.iinfo(np.int32).max
"""Craftax' own time limit, which it reports as an end of the game like any other: `from_craftax` has its own."""


def make_craftax(task: str, *, max_steps: int | None = None, **params: Any) -> Env:
    """Makes the environment of Craftax called ``task``, for example ``Craftax-Classic-Symbolic-v1``.

    ``max_steps`` is as in `from_craftax`, and ``params`` override fields of Craftax' ``EnvParams``, which may be
    traced.

    Raises:
        ConfigError: If the name or a parameter is unknown, or Craftax is not installed.
    """
    name = f"craftax/{task}"
    with library("craftax", task):
        from craftax.craftax_env import make_craftax_env_from_name

        environment = make_craftax_env_from_name(task, auto_reset=False)
        env_params = environment.default_params
    fields = {field.name for field in dataclasses.fields(env_params)} - {"max_timesteps"}
    check_parameters(name, params, fields | {"max_steps"})
    limit = env_params.max_timesteps if max_steps is None else max_steps
    return from_craftax(name, environment, env_params.replace(**params), max_steps=limit)


def from_craftax(name: str, environment: Any, env_params: Any, *, max_steps: int = 10_000) -> Env:
    """Adapts an environment of Craftax that does not reset itself; observations keep its declared space.

    ``max_steps`` is the number of steps after which an episode is truncated, in place of the ``max_timesteps`` of
    ``env_params``. A world costs far more than a step, so another `Env.resets` than the default may be much faster. A
    level is a key, and so is the noise of a step.

    Raises:
        ConfigError: If a number is too small.
    """
    env_params = env_params.replace(max_timesteps=NEVER)
    with jax.ensure_compile_time_eval():
        declared, actions = environment.observation_space(env_params), environment.action_space(env_params)
        low, high = np.asarray(declared.low), np.asarray(declared.high)

    def reset(key: Key) -> tuple[PyTree, Array]:
        obs, state = environment.reset(key, env_params)
        return state, obs

    def step(state: PyTree, action: Array, key: Key) -> Consequence:
        obs, state, reward, done, _ = environment.step(key, state, action, env_params)
        return Consequence(state, obs, reward, done, False)

    env = episodes(
        name,
        reset,
        step,
        Box(low, high, tuple(declared.shape), declared.dtype),
        Discrete(int(actions.n)),
        chance=jax.random.split,
        max_steps=max_steps,
    )
    return env._replace(partly_observed=True)
