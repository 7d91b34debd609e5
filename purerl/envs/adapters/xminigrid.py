"""Adapter of XLand-MiniGrid to `Env`. xminigrid (the extra ``purerl[xminigrid]``) is imported on first use."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.stepping import Consequence, check_counts, episodes, seeds
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, PyTree


def make_xminigrid(task: str, *, max_steps: int | None = None, view_size: int | None = None, **params: Any) -> Env:
    """Makes the environment registered in xminigrid as ``task``, for example ``MiniGrid-Empty-8x8``.

    ``max_steps`` and ``view_size`` (odd), both whole numbers, override fields of its ``EnvParams``.

    Raises:
        ConfigError: If the name or a parameter is unknown, or xminigrid is not installed.
    """
    name, given = f"xminigrid/{task}", {"max_steps": max_steps, "view_size": view_size}
    check_parameters(name, params, given)
    check_counts(name, max_steps=(max_steps, 1), view_size=(view_size, 3))
    if view_size is not None and view_size % 2 == 0:
        raise ConfigError(f"env = {name!r}: view_size = {view_size}: must be odd")
    with library("xminigrid", task):
        import xminigrid

        environment, env_params = xminigrid.make(task, **{k: v for k, v in given.items() if v is not None})
    return from_xminigrid(name, environment, env_params)


def from_xminigrid(name: str, environment: Any, env_params: Any) -> Env:
    """Adapts an environment of XLand-MiniGrid without wrappers; ``env_params`` hold its rules and its time limit.

    The view ``[H, W, 2]`` of kinds and colours of tiles becomes boolean planes ``[H, W, C]``, one for each kind and
    then one for each colour. An episode is truncated after ``env_params.max_steps`` steps and terminates where
    xminigrid's discount is 0. A level is a key, which curricula may choose; an episode is solved if its return is above
    0. Steps are deterministic.

    Raises:
        ConfigError: If observations have another shape.
    """
    with jax.ensure_compile_time_eval():
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES

        shape = environment.observation_shape(env_params)
    if not isinstance(shape, tuple) or len(shape) != 3 or shape[-1] != 2:
        raise ConfigError(f"env = {name!r}: observations are {shape}; only views [H, W, 2] are supported")

    def observe(view: Array) -> Array:
        planes = [view[..., i, None] == np.arange(n) for i, n in enumerate((NUM_TILES, NUM_COLORS))]
        return jnp.concatenate(planes, axis=-1)

    def reset(key: Key) -> tuple[PyTree, Array]:
        timestep = environment.reset(env_params, key)
        return timestep, observe(timestep.observation)

    def step(timestep: PyTree, action: Array, _: tuple[()]) -> Consequence:
        timestep = environment.step(env_params, timestep, action)
        terminated = timestep.discount == 0
        return Consequence(timestep, observe(timestep.observation), timestep.reward, terminated, timestep.last())

    planes = Box(False, True, (*shape[:2], NUM_TILES + NUM_COLORS), jnp.dtype(bool))
    actions = Discrete(int(environment.num_actions(env_params)))
    return episodes(name, reset, step, planes, actions)._replace(partly_observed=True, design=seeds(0.0))
