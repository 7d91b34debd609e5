"""The common part of the games: an episode of several agents, with discrete actions and observations of bits."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from purerl.envs.episodic import episodic, one_level
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, Key, PyTree


def game(
    name: str,
    *,
    num_agents: int,
    num_actions: int,
    initial: Callable[[PyTree], PyTree],
    dynamics: Callable[..., tuple[PyTree, Array, Array]],
    observe: Callable[[PyTree], PyTree],
    observation_space: Space,
    time_limit: Any,
    levels: Callable[[Key, tuple[int, ...]], PyTree] = one_level,
    noise: Callable[[Key, tuple[int, ...]], PyTree] | None = None,
    legal: Callable[[PyTree], Array] | None = None,
    acting: Callable[[PyTree], Array] | None = None,
    own: Callable[[PyTree], PyTree] | None = None,
    state: Callable[[PyTree], PyTree] | None = None,
    zero_sum: bool = False,
    hidden: bool = False,
) -> Env:
    """Makes an `Env` of a game of ``num_agents`` agents ``N``, whose episodes end together.

    Args:
        name: As in `Env`.
        legal: As in `Env`.
        acting: As in `Env`.
        own: As in `Env`.
        state: As in `Env`.
        zero_sum: As in `Env`.
        hidden: As in `Env`.
        num_actions: The number of actions of each agent. Actions are brought into range.
        num_agents: As in `episodic`.
        initial: As in `episodic`.
        dynamics: As in `episodic`.
        observe: As in `episodic`.
        observation_space: As in `episodic`.
        time_limit: As in `episodic`.
        noise: As in `episodic`.
        levels: As in `episodic`; by default every episode begins alike.
    """
    env = episodic(
        name,
        levels=levels,
        initial=initial,
        dynamics=lambda physical, action, *chance: dynamics(physical, jnp.clip(action, 0, num_actions - 1), *chance),
        observe=observe,
        time_limit=time_limit,
        observation_space=observation_space,
        action_space=Discrete(num_actions),
        legal=legal,
        noise=noise,
        num_agents=num_agents,
    )
    return env._replace(acting=acting, own=own, state=state, zero_sum=zero_sum, hidden=hidden)


def bits(size: int) -> Box:
    """Makes the space of vectors of ``size`` booleans."""
    return Box(False, True, (size,), jnp.dtype(bool))


def check(name: str, parameter: str, value: Any, sound: bool, requirement: str) -> None:
    """Raises `ConfigError` unless a parameter of environment ``name`` is ``sound``.

    Args:
        name: The name of the environment.
        parameter: The name of the parameter.
        value: Its value.
        sound: Whether the value is right.
        requirement: The end of the error's text, after "must be".
    """
    if not sound:
        raise ConfigError(f"env = {name!r}: {parameter} = {value!r}: must be {requirement}")
