"""Wrappers that end episodes which the environment within would go on with, and begin anew."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.envs.wrappers.kinds import COUNT, switch, takes
from purerl.envs.wrappers.parts import begin, choose, ended, needs_one_agent, with_noise
from purerl.types import Array, Env, Key, PyTree, Step


class Timed(NamedTuple):
    """The state of the environment within, and the number of steps taken in this episode (int32)."""

    inner: PyTree
    time: Array


@takes(COUNT)
def max_episode_steps(env: Env, steps: int) -> Env:
    """Episodes are truncated after ``steps`` steps, unless they end earlier or that step terminates.

    The environment's own limit stays as it is. A new beginning is drawn for every step. Raises `ConfigError` for what
    is no whole number >= 1, and for several agents.
    """
    needs_one_agent(env, "max_episode_steps")

    def reset(key: Key) -> tuple[Timed, PyTree]:
        inner, obs = env.reset(key)
        return Timed(inner, jnp.zeros((), jnp.int32)), obs

    def step(noise: tuple[PyTree, Key], env_state: Timed, action: Array) -> tuple[Timed, Step]:
        inner, step = env.step(noise[0], env_state.inner, action)
        time, over = env_state.time + 1, ended(step)
        cut = (time >= steps) & ~over
        step = step._replace(truncated=step.truncated | cut)
        inner, step = begin(cut, env.reset(noise[1]), inner, step)
        return Timed(inner, jnp.where(over | cut, 0, time)), step

    return env._replace(reset=reset, noise=with_noise(env, "max_episode_steps", jax.random.split), step=step)


class Masked(NamedTuple):
    """The state of the environment within, and what the policy sees next."""

    inner: PyTree
    obs: PyTree


@switch
def mask_nonfinite(env: Env) -> Env:
    """An environment that shows or pays what is not finite begins anew, so that no such number leaves it.

    The step counts as cut off: truncated, with reward 0, and with the last finite observation as ``next_obs``, from
    which estimates bootstrap. Where rewards are costs such a step is better than others; add a cost of your own to it.
    A new beginning is drawn for every step. Without the wrapper such a number ends a training, which is frozen.
    """

    def reset(key: Key) -> tuple[Masked, PyTree]:
        inner, obs = env.reset(key)
        return Masked(inner, obs), obs

    def step(noise: tuple[PyTree, Key], env_state: Masked, action: Array) -> tuple[Masked, Step]:
        inner, step = env.step(noise[0], env_state.inner, action)
        shown = jax.tree.leaves((step.obs, step.next_obs, step.reward))
        floats = [x for x in shown if jnp.issubdtype(x.dtype, jnp.inexact)]
        wrong = ~jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
        none = jnp.zeros_like(step.terminated)
        step = choose(wrong, Step(step.obs, env_state.obs, jnp.zeros_like(step.reward), none, ~none), step)
        inner, step = begin(wrong, env.reset(noise[1]), inner, step)
        return Masked(inner, step.obs), step

    return env._replace(reset=reset, noise=with_noise(env, "mask_nonfinite", jax.random.split), step=step)
