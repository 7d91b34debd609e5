"""Wrappers that end episodes which would go on in the environment within."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.envs.wrappers.kinds import COUNT, switch, takes
from purerl.envs.wrappers.parts import choose, holding, needs_one_agent
from purerl.types import Array, Env, PyTree, Step


class Timed(NamedTuple):
    """The state of the environment within, and the number of steps taken in this episode (int32)."""

    inner: PyTree
    time: Array


@takes(COUNT)
def max_episode_steps(env: Env, steps: int) -> Env:
    """Truncates episodes after ``steps`` steps, unless they end earlier or that step terminates.

    The environment's own limit stays as it is.

    Raises:
        ConfigError: If ``steps`` is no whole number >= 1, or if there are several agents.
    """
    needs_one_agent(env, "max_episode_steps")

    def hold(inner: PyTree, obs: PyTree) -> tuple[Timed, PyTree]:
        return Timed(inner, jnp.zeros((), jnp.int32)), obs

    def step(noise: PyTree, env_state: Timed, action: Array) -> tuple[Timed, Step]:
        inner, step = env.step(noise, env_state.inner, action)
        time = env_state.time + 1
        return Timed(inner, time), step._replace(truncated=step.truncated | ((time >= steps) & ~step.terminated))

    return holding(env, hold, step)


class Masked(NamedTuple):
    """The state of the environment within, and the last observation that was finite."""

    inner: PyTree
    obs: PyTree


@switch
def mask_nonfinite(env: Env) -> Env:
    """Truncates episodes at a step whose observation or reward is not finite, so that no step returns such a number.

    The step is truncated, with reward 0, and with the last finite observation as ``next_obs``, from which estimates
    bootstrap. Where rewards are costs such a step is better than others; add a cost of your own to it. The first
    observations of episodes are not checked. Without the wrapper such a number ends a training, which is frozen.
    """

    def step(noise: PyTree, env_state: Masked, action: Array) -> tuple[Masked, Step]:
        inner, step = env.step(noise, env_state.inner, action)
        floats = [x for x in jax.tree.leaves(step[:2]) if jnp.issubdtype(x.dtype, jnp.inexact)]
        wrong = ~jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
        none = jnp.zeros_like(step.terminated)
        ended = {"terminated": none, "truncated": ~none, "over": jax.tree.map(jnp.ones_like, step.over)}
        cut = step._replace(next_obs=env_state.obs, reward=jnp.zeros_like(step.reward), **ended)
        step = choose(wrong, cut, step)
        return Masked(inner, step.next_obs), step

    return holding(env, lambda inner, obs: (Masked(inner, obs), obs), step)
