"""Wrappers that append messages to observations: cheap talk, which changes nothing else."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs import chance
from purerl.envs.wrappers.parts import beside, kept, needs, needs_all_legal, needs_one_agent, with_view
from purerl.errors import ConfigError
from purerl.spaces import Box
from purerl.types import Array, Env, Key, PyTree, Step


class Channel(NamedTuple):
    """The form of messages between a speaker and a listener.

    Messages ``[size]`` are numbers in [-``bound``, ``bound``], about observations ``[inputs]``, of which the listener
    does not see the elements ``unseen``.
    """

    inputs: int
    size: int
    bound: float
    unseen: tuple[int, ...] = ()


class Goal(NamedTuple):
    """Goals that a policy may be led to.

    ``draw(key, shape)`` draws goals ``[*shape, size]``, uniformly, and ``reached(obs)`` ``[size]`` is the goal that an
    observation ``[inputs]`` shows as reached.
    """

    inputs: int
    size: int
    draw: Callable[[Key, tuple[int, ...]], Array]
    reached: Callable[[Array], Array]


class Led(NamedTuple):
    """The state of the environment within, and the goal ``[G]`` of this episode."""

    inner: PyTree
    goal: Array


def messages(env: Env, channel: Channel, speak: Callable[[Array], Array]) -> Env:
    """Appends a message to observations: ``[D]`` becomes ``[D - unseen + size]``, ``speak(obs [D])`` last.

    The setting of cheap talk (Lu et al. 2022, arXiv 2211.11030, section 4): a message is a function of the observation
    alone, so rewards, ends and what an action does are those of ``env``.

    Raises:
        ConfigError: If observations are not vectors of ``inputs`` elements, if they lack ``unseen`` elements or have no
            others, if there are several agents, or if actions may be illegal, which the hidden elements might tell.
    """
    hear, space = _heard(env, channel)
    hidden = env.hidden or bool(channel.unseen)
    return with_view(env._replace(hidden=hidden), lambda obs: hear(obs, speak(obs)), space)


def led(env: Env, channel: Channel, speak: Callable[[Array, Array], Array], goal: Goal) -> Env:
    """Appends messages as `messages` does, by a speaker with a goal for each episode: ``speak(obs [D], goal [G])``.

    The reward is ``exp(-|reached - goal|^2)``, of the state that the step led to (arXiv 2211.11030, section 5.3), and
    not that of ``env``. The listener does not see the goal. Raises `ConfigError` as `messages` does.
    """
    hear, space = _heard(env, channel)

    def begin(level: tuple[PyTree, Array]) -> tuple[Led, Array]:
        inner, obs = env.begin(level[0])
        return Led(inner, level[1]), hear(obs, speak(obs, level[1]))

    def step(noise: PyTree, env_state: Led, action: Array) -> tuple[Led, Step]:
        inner, step = env.step(noise, env_state.inner, action)
        target, obs = env_state.goal, step.next_obs
        reward = jnp.exp(-jnp.sum(jnp.square(goal.reached(obs) - target)))
        return Led(inner, target), step._replace(next_obs=hear(obs, speak(obs, target)), reward=reward)

    levels = beside(env.levels, "led", goal.draw)
    changed = env._replace(levels=levels, begin=begin, step=step, keep=kept(env), observation_space=space, design=None)
    return changed._replace(hidden=True, redraw=chance.within(env.redraw))


def _heard(env: Env, channel: Channel) -> tuple[Callable[[Array, Array], Array], Box]:
    """Returns ``hear(obs, message)``, the observation of the listener, and its space."""
    needs_one_agent(env, "messages")
    needs_all_legal(env, "messages", "hide")
    space = needs(Box, env, "observation", env.observation_space, "messages")
    if space.shape != (channel.inputs,):
        problem = f"observations {list(space.shape)}; messages of this kind need [{channel.inputs}]"
        raise ConfigError(f"env = {env.name!r}: has {problem}")
    shown = np.setdiff1d(np.arange(channel.inputs), channel.unseen)
    if not shown.size or not set(channel.unseen) <= set(range(channel.inputs)):
        problem = f"must be some of 0 to {channel.inputs - 1}, and not all of them"
        raise ConfigError(f"unseen = {channel.unseen}: {problem}, as env = {env.name!r} has {channel.inputs}")
    bound = np.full(channel.size, channel.bound, np.float32)
    low, high = (
        spaces.array_namespace(end).concatenate(
            [spaces.array_namespace(end).broadcast_to(end, space.shape)[shown].astype(np.float32), message_bound]
        )
        for end, message_bound in ((space.low, -bound), (space.high, bound))
    )

    def hear(obs: Array, message: Array) -> Array:
        return jnp.concatenate([obs[..., shown].astype(jnp.float32), message], axis=-1)

    return hear, Box(low, high, low.shape, jnp.float32)
