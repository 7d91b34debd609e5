"""Composes an environment from its physics: step counter, time limit, true next observation, automatic reset."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.spaces import Box, Space
from purerl.types import Array, Env, Key, PyTree, Step


class EpisodeState(NamedTuple):
    """The physical state, and the number of steps taken in this episode (int32)."""

    physical: PyTree
    t: Array


def episodic(
    name: str,
    *,
    noise: Callable[[Key, tuple[int, ...]], PyTree],
    initial: Callable[[PyTree], PyTree],
    dynamics: Callable[[PyTree, Array], tuple[PyTree, Array, Array]],
    observe: Callable[[PyTree], Array],
    time_limit: Any,
    observation_space: Space,
    action_space: Space,
) -> Env:
    """An `Env` whose state is an `EpisodeState`.

    - ``noise(key, shape)`` draws what ``shape`` many resets need at random, in one call.
    - ``initial(noise) -> physical`` is the first state of an episode: any pytree of arrays, never of keys.
    - ``dynamics(physical, action) -> (physical, reward, terminated)`` brings the action into range itself.
    - ``observe(physical) -> obs``, cast to float32.
    - ``time_limit``, in steps, a number or a tracer: reaching it truncates, unless the same step terminates.

    Rewards are float32, flags bool, and no leaf is weakly typed, whatever these functions return. Randomness enters at
    the reset only, so that the dynamics are deterministic.
    """

    def start(noise: PyTree) -> PyTree:
        return jax.tree.map(_strong, initial(noise))

    def seen(physical: PyTree) -> Array:
        return jnp.asarray(observe(physical), jnp.float32)

    def reset(key: Key) -> tuple[EpisodeState, Array]:
        physical = start(noise(key, ()))
        return EpisodeState(physical, jnp.zeros((), jnp.int32)), seen(physical)

    def step(noise: PyTree, env_state: EpisodeState, action: Array) -> tuple[EpisodeState, Step]:
        physical, reward, terminated = dynamics(env_state.physical, action)
        terminated = jnp.asarray(terminated, bool)
        t = env_state.t + 1
        last = terminated | (t >= time_limit)
        fresh, next_obs = start(noise), seen(physical)
        following = jax.tree.map(lambda new, old: jnp.where(last, new, jnp.asarray(old, new.dtype)), fresh, physical)
        obs = jnp.where(last, seen(fresh), next_obs)
        step = Step(obs, next_obs, jnp.asarray(reward, jnp.float32), terminated, last & ~terminated)
        return EpisodeState(following, jnp.where(last, 0, t)), step

    return Env(name, reset, noise, step, observation_space, action_space)


def box(low: Any, high: Any) -> Box:
    """A float32 `Box` of vectors, given element by element. Its bounds are numpy arrays unless a number is traced."""
    return Box(_bound(low), _bound(high), (len(low),), jnp.float32)


def _bound(values: Any) -> Any:
    traced = any(isinstance(value, jax.core.Tracer) for value in values)
    return (jnp if traced else np).array(values, dtype=np.float32)


def _strong(x: Any) -> Array:
    return jnp.asarray(x, jnp.result_type(x))
