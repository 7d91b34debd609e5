"""The common part of the adapters of brax and MuJoCo Playground: states with observation, reward and ``done``."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.envs.adapters.stepping import Consequence, check_counts, episodes, lenient, unbounded
from purerl.spaces import Box
from purerl.types import Array, Env, Key, PyTree


def simulated(name: str, environment: Any, *, max_steps: int | None, action_repeat: int = 1) -> Env:
    """Makes an `Env` of an environment whose ``reset(key)`` and ``step(state, action)`` return states of this kind.

    Actions ``[A]`` are clipped to [-1, 1]. ``action_repeat`` is how often a step repeats its action, summing rewards,
    up to the end of the episode; for the rest see `stepping.episodes`. Since a first state costs about as much as a
    step, `Env.resets` is ``few``.

    Raises:
        ConfigError: If a count is too small.
    """
    check_counts(name, max_steps=(max_steps, 1), action_repeat=(action_repeat, 1))

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        state = trees.strong(environment.reset(key))
        return state, state.obs

    def advance(inner: PyTree, action: Array) -> PyTree:
        """Takes ``action_repeat`` steps; once the episode is done the state and the summed reward no longer change."""
        following = trees.strong(environment.step(inner, action))
        if action_repeat == 1:
            return following

        def again(_: Array, state: PyTree) -> PyTree:
            further = trees.strong(environment.step(state, action))
            further = further.replace(reward=state.reward + further.reward)
            return jax.tree.map(lambda new, old: jnp.where(state.done > 0, old, new), further, state)

        return jax.lax.fori_loop(1, action_repeat, again, following)

    def step(inner: PyTree, action: Array, _: tuple[()]) -> Consequence:
        inner = advance(inner, action)
        return Consequence(inner, inner.obs, inner.reward, inner.done > 0, False)

    with lenient():
        shapes = jax.eval_shape(reset, jax.random.key(0))[1]
    actions = Box(-1.0, 1.0, (environment.action_size,), jnp.float32)
    env = episodes(name, reset, step, unbounded(shapes), actions, max_steps=max_steps)
    return env._replace(resets="few")
