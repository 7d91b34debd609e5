"""brax environments as `Env`. brax, the extra ``purerl[brax]``, is imported when the first one is made."""

import contextlib
import importlib.util
import io
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.envs.names import BACKENDS, BRAX, check_parameters
from purerl.errors import ConfigError
from purerl.names import nearest
from purerl.spaces import Box
from purerl.types import Array, Env, Key, PyTree, Step

POOL_SEED = 0
"""The key of a pool's states: it is the same in every run."""


class BraxState(NamedTuple):
    """brax's own state, and the steps of the episode so far (int32)."""

    inner: PyTree
    time: Array


def make_brax(name: str, **params: Any) -> Env:
    """The brax task ``BACKEND/TASK``, for example ``spring/reacher``; ``params`` are those of `from_brax`.

    Raises `ConfigError` for a name or parameter that does not exist, and if brax is not installed.
    """
    backend, _, task = name.partition("/")
    if backend not in BACKENDS or task not in BRAX:
        known = [f"{b}/{t}" for b in BACKENDS for t in BRAX]
        raise ConfigError(f"env = 'brax/{name}': unknown task; nearest: {nearest(name, known)}")
    check_parameters(f"brax/{name}", params, ("max_steps", "action_repeat", "reset_pool"))
    if importlib.util.find_spec("brax") is None:
        raise ConfigError(f"env = 'brax/{name}': brax is not installed; pip install 'purerl[brax]'")
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), jax.ensure_compile_time_eval():
        warnings.simplefilter("ignore")  # brax and what it imports speak of what they will not maintain
        from brax import envs

        environment = envs.get_environment(task, backend=backend)
    return from_brax(f"brax/{name}", environment, **params)


def from_brax(
    name: str, environment: Any, *, max_steps: int = 1000, action_repeat: int = 1, reset_pool: int = 0
) -> Env:
    """Adapts a brax environment without wrappers. Actions ``[A]`` lie in [-1, 1] and are clipped into it.

    After ``max_steps`` steps an episode is cut; where brax says that it is done, it is terminated. ``next_obs`` is the
    true next observation. Every episode begins in a fresh random state, which is computed at every step, whether an
    episode ended or not; with ``reset_pool`` in one of so many that were drawn once and are the same in all runs.
    A step repeats its action ``action_repeat`` times, adding rewards up until the end. Noise is a key a step, or the
    number of a state in the pool. Raises `ConfigError` for numbers that are too small, and for an observation that is
    no vector.
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
            return _strong(environment.reset(key))

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
        """One step or several; after the end the state stays as it is, without further reward."""
        with jax.numpy_rank_promotion("allow"):
            following = _strong(environment.step(inner, action))
            if action_repeat == 1:
                return following

            def again(_, state):
                further = _strong(environment.step(state, action))
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


def _strong(state: PyTree) -> PyTree:
    """No weak types, and no Python numbers."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(jnp.asarray(x), jnp.asarray(x).dtype), state)
