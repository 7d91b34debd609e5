"""Adapter of brax environments to `Env`. brax (the extra ``purerl[brax]``) is imported on first use."""

import contextlib
import importlib.util
import io
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import trees
from purerl.catalogue import BACKENDS, BRAX, check_parameters
from purerl.errors import ConfigError
from purerl.names import nearest
from purerl.spaces import Box
from purerl.types import Array, Env, Key, PyTree, Step

POOL_SEED = 0
"""Seed of the pool of initial states, which is the same in every run."""


class BraxState(NamedTuple):
    """brax's own state, and the number of steps taken in this episode (int32)."""

    inner: PyTree
    time: Array


def make_brax(name: str, **params: Any) -> Env:
    """The brax task ``BACKEND/TASK``, for example ``spring/reacher``; ``params`` are passed to `from_brax`.

    Raises `ConfigError` for an unknown name or parameter, and if brax is not installed.
    """
    backend, _, task = name.partition("/")
    if backend not in BACKENDS or task not in BRAX:
        known = [f"{b}/{t}" for b in BACKENDS for t in BRAX]
        raise ConfigError(f"env = 'brax/{name}': unknown task; nearest: {nearest(name, known)}")
    check_parameters(f"brax/{name}", params, ("max_steps", "action_repeat", "reset_pool"))
    if importlib.util.find_spec("brax") is None:
        raise ConfigError(f"env = 'brax/{name}': brax is not installed; pip install 'purerl[brax]'")
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), jax.ensure_compile_time_eval():
        warnings.simplefilter("ignore")  # deprecation warnings of brax and its dependencies
        from brax import envs

        environment = envs.get_environment(task, backend=backend)
    return from_brax(f"brax/{name}", environment, **params)


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
    `ConfigError` for numbers that are too small, and for an observation that is not a vector.
    """
    for field, value, least in (
        ("max_steps", max_steps, 1),
        ("action_repeat", action_repeat, 1),
        ("reset_pool", reset_pool, 0),
    ):
        if type(value) is not int or value < least:
            raise ConfigError(f"env = {name!r}: {field} = {value!r}: must be a whole number >= {least}")

    def fresh(key: Key) -> PyTree:
        with jax.numpy_rank_promotion("allow"):
            return trees.strong(environment.reset(key))

    shape = jax.eval_shape(fresh, jax.random.key(0)).obs
    if not hasattr(shape, "shape") or len(shape.shape) != 1:
        raise ConfigError(f"env = {name!r}: its observation must be a vector")
    if reset_pool:
        with jax.ensure_compile_time_eval():
            pool = jax.jit(jax.vmap(fresh))(jax.random.split(jax.random.key(POOL_SEED), reset_pool))

    def reset(key: Key) -> tuple[BraxState, Array]:
        inner = fresh(key)
        return BraxState(inner, jnp.zeros((), jnp.int32)), inner.obs

    def noise(key: Key, shape: tuple[int, ...]) -> Array:
        return jax.random.randint(key, shape, 0, reset_pool) if reset_pool else jax.random.split(key, shape)

    def initial(noise: Array) -> PyTree:
        return jax.tree.map(lambda x: x[noise], pool) if reset_pool else fresh(noise)

    def advance(inner: PyTree, action: Array) -> PyTree:
        """``action_repeat`` steps; once the episode is done the state and the summed reward no longer change."""
        with jax.numpy_rank_promotion("allow"):
            following = trees.strong(environment.step(inner, action))
            if action_repeat == 1:
                return following

            def again(_, state):
                further = trees.strong(environment.step(state, action))
                further = further.replace(reward=state.reward + further.reward)
                return jax.tree.map(lambda new, old: jnp.where(state.done > 0, old, new), further, state)

            return jax.lax.fori_loop(1, action_repeat, again, following)

    def step(noise: Array, env_state: BraxState, action: Array) -> tuple[BraxState, Step]:
        inner = advance(env_state.inner, jnp.clip(action, -1.0, 1.0))
        time = env_state.time + 1
        terminated = inner.done > 0
        truncated = (time >= max_steps) & ~terminated
        last = terminated | truncated
        begin = jax.tree.map(lambda new, old: jnp.where(last, new, old), initial(noise), inner)
        result = Step(begin.obs, inner.obs, inner.reward, terminated, truncated)
        return BraxState(begin, jnp.where(last, 0, time)), result

    bound = np.float32(np.inf)
    return Env(
        name,
        reset,
        noise,
        step,
        Box(-bound, bound, shape.shape, shape.dtype),
        Box(-1.0, 1.0, (environment.action_size,), jnp.float32),
    )
