"""Agents whose episodes end before the others', or begin after them: who of an environment's agents is in the game.

A game lasts until no agent is left in it. What happens to an agent while it is out of the game is none of its episode:
`Step.present` tells learners where there is nothing to learn from.
"""

from typing import NamedTuple

import jax.numpy as jnp

from purerl.envs import chance
from purerl.types import Array, Env, PyTree, Step


class Seated(NamedTuple):
    """The state of an environment, and which of its agents are in the game, bool ``[N]``."""

    inner: PyTree
    present: Array


def apart(env: Env) -> bool:
    """Returns whether the episodes of agents of ``env`` may end at different times."""
    return env.num_agents > 1 and not env.ends_together


def begun(env: Env, inner: PyTree) -> PyTree:
    """Returns the state of the `seated` environment in which a game of ``env`` is in the state ``inner``.

    Where the environment does not tell who is present, all agents are.
    """
    if not apart(env):
        return inner
    return Seated(inner, env.present(inner) if env.present else jnp.ones(env.num_agents, bool))


def seated(env: Env) -> Env:
    """Returns ``env`` with steps that say who was in the game, and when it is over; itself unless agents end `apart`.

    In a step that an agent takes while it is out of the game ``present`` is False and it ``terminated``, so that
    neither estimates nor memories reach from one of its episodes to the next. It is paid nothing then, but in the step
    in which it comes. An agent that leaves without a flag, or is in the game when it is over, was truncated.
    """
    if not apart(env):
        return env

    def begin(level: PyTree) -> tuple[PyTree, PyTree]:
        inner, obs = env.begin(level)
        return begun(env, inner), obs

    def step(noise: PyTree, env_state: Seated, action: Array) -> tuple[Seated, Step]:
        after, made = advance(env, noise, env_state, action)
        return after, made._replace(reward=jnp.where(env_state.present | after.present, made.reward, 0.0))

    keep = env.keep
    seated_keep = keep and (lambda before, begun: begun._replace(inner=keep(before.inner, begun.inner)))
    changed = env._replace(begin=begin, step=step, keep=seated_keep, redraw=chance.within(env.redraw))
    return changed._replace(present=None, ends_together=True)


def advance(env: Env, noise: PyTree, env_state: Seated, action: Array) -> tuple[Seated, Step]:
    """Steps an environment whose agents end `apart`, as `seated` does, with all rewards that it pays."""
    inner, made = env.step(noise, env_state.inner, action)
    was = env_state.present
    there = env.present(inner) if env.present else was & ~made.last
    over = ~jnp.any(there) if isinstance(made.over, tuple) else jnp.any(made.over)
    cut = made.truncated | (~made.terminated & (~there | over))
    ends = {"terminated": made.terminated | ~was, "truncated": cut & was, "present": was}
    return Seated(inner, there), made._replace(**ends, over=jnp.broadcast_to(over, was.shape))
