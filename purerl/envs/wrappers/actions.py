"""Wrappers that change which actions are executed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import draw, spaces
from purerl.config import Range
from purerl.envs.wrappers.kinds import COUNT, number, takes
from purerl.envs.wrappers.parts import beside, choose, holding, needs_all_legal, needs_one_agent
from purerl.types import Array, Env, Key, PyTree, Step


class Sticky(NamedTuple):
    """The state of the environment within, the action executed last, and whether the episode has had one (bool)."""

    inner: PyTree
    action: PyTree
    begun: Array


@takes(number(Range(0, 1, open_high=False)))
def sticky_actions(env: Env, probability: Any) -> Env:
    """Executes the last executed action instead of the given one with a ``probability`` (may be traced) at each step.

    Machado et al. 2018 (arXiv 1709.06009), "Sticky actions": ``A_t = a_t`` with probability ``1 - p``, else
    ``A_{t-1}``. The first action of an episode is always executed: the emulator of the paper begins with its no-op,
    which an environment in general does not have. Within `action_repeat` each execution draws anew, as in the paper,
    until the action given is the one executed last. The noise gains a uniform number a step.

    Raises:
        ConfigError: If the probability is no number in [0, 1], if actions may be illegal, which might be repeated, or
            if there are several agents.
    """
    needs_all_legal(env, "sticky_actions", "repeat")
    needs_one_agent(env, "sticky_actions")
    like: Any = spaces.struct(env.action_space)

    def hold(inner: PyTree, obs: PyTree) -> tuple[Sticky, PyTree]:
        return Sticky(inner, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like), jnp.zeros((), bool)), obs

    def step(noise: tuple[PyTree, Array], env_state: Sticky, action: PyTree) -> tuple[Sticky, Step]:
        repeat = (noise[1] < probability) & env_state.begun
        execute = lambda before, now: jnp.where(repeat, before, jnp.asarray(now, before.dtype))
        action = jax.tree.map(execute, env_state.action, action)
        inner, step = env.step(noise[0], env_state.inner, action)
        return Sticky(inner, action, jnp.ones((), bool)), step

    return holding(env, hold, step, noise=beside(env.noise, "sticky_actions", draw.uniform))


@takes(COUNT)
def action_repeat(env: Env, times: int) -> Env:
    """Executes each action ``times`` times, up to the end of the episode, and pays the sum of the rewards.

    Mnih et al. 2015, Methods, "Training details" (frame skipping), without a maximum over frames. ``next_obs`` is the
    observation after the last execution. With ``times`` 1 the environment is returned as it is.

    Raises:
        ConfigError: If ``times`` is no whole number >= 1, if actions may be illegal, which might be repeated, or if
            there are several agents.
    """
    if times == 1:
        return env
    needs_all_legal(env, "action_repeat", "repeat")
    needs_one_agent(env, "action_repeat")

    def noise(key: Key, shape: tuple[int, ...]) -> PyTree:
        return env.noise(key, (*shape, times))

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        def again(so_far: tuple[PyTree, Step], noise: PyTree) -> tuple[tuple[PyTree, Step], None]:
            further, step = env.step(noise, so_far[0], action)
            step = step._replace(reward=so_far[1].reward + step.reward)
            return choose(so_far[1].last, so_far, (further, step)), None

        first = env.step(jax.tree.map(lambda x: x[0], noise), env_state, action)
        return jax.lax.scan(again, first, jax.tree.map(lambda x: x[1:], noise), times - 1)[0]

    return env._replace(noise=noise, step=step)
