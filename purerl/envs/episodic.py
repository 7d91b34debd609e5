"""Builds an `Env` from its dynamics: adds step counter, time limit and true next observation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces, trees
from purerl.errors import RAISED, ConfigError
from purerl.spaces import Box, Space
from purerl.types import Array, Env, Key, PyTree, Step


class EpisodeState(NamedTuple):
    """The physical state, and ``t``, the number of steps taken in this episode (int32)."""

    physical: PyTree
    t: Array


def episodic(
    name: str,
    *,
    levels: Callable[[Key, tuple[int, ...]], PyTree],
    initial: Callable[[PyTree], PyTree],
    dynamics: Callable[..., tuple[PyTree, Array, Array]],
    observe: Callable[[PyTree], PyTree],
    time_limit: Any,
    observation_space: Space,
    action_space: Space,
    legal: Callable[[PyTree], Array] | None = None,
    noise: Callable[[Key, tuple[int, ...]], PyTree] | None = None,
    num_agents: int = 1,
    info: Callable[[PyTree], dict[str, Array]] | None = None,
) -> Env:
    """Builds an `Env` whose state is an `EpisodeState`.

    Rewards are cast to float32, flags to bool, the state to the dtypes of the first, and weak types are removed.

    Args:
        name: The name of the `Env`.
        levels: ``levels(key, shape)`` draws all that is random about the beginnings of ``shape`` many episodes in one
            call. Consumes ``key``.
        initial: ``initial(level) -> physical``, the first state of an episode, any pytree of arrays that are not keys.
        dynamics: ``dynamics(physical, action) -> (physical, reward, terminated)`` must clip the action itself. With
            ``noise`` it is ``dynamics(physical, action, noise)``.
        observe: ``observe(physical) -> obs``, the observation, which is cast to the dtypes of ``observation_space``.
        time_limit: In steps, a number or a tracer. Reaching it truncates, unless the same step terminates.
        observation_space: As in `Env`.
        action_space: As in `Env`.
        legal: As in `Env`.
        noise: ``noise(key, shape)`` draws all that is random about ``shape`` many steps in one call. None: nothing is.
            Consumes ``key``.
        num_agents: As in `Env`. Above 1, ``action`` and ``obs`` lead with ``[num_agents]``, and the spaces are those of
            one agent. The reward is that of each agent ``[num_agents]``, or one for the team ``[]``, and so is
            ``terminated``. The time limit is that of the game: it truncates whoever is left.
        info: ``info(physical)`` are the numbers by name that the state after a step tells (`Step.info`); those of the
            last states of episodes are averaged into metrics. None: none.

    Raises:
        ConfigError: If ``time_limit`` is below 1.
    """
    if isinstance(time_limit, int | float) and not time_limit >= 1:
        raise ConfigError(f"env = {name!r}: time_limit = {time_limit!r}: must be at least 1")

    def observed(physical: PyTree) -> PyTree:
        return jax.tree.map(
            lambda x, like: jnp.asarray(x, like.dtype), observe(physical), spaces.struct(observation_space)
        )

    def begin(level: PyTree) -> tuple[EpisodeState, PyTree]:
        physical = trees.strong(initial(level))
        return EpisodeState(physical, jnp.zeros((), jnp.int32)), observed(physical)

    def step(chance: PyTree, env_state: EpisodeState, action: PyTree) -> tuple[EpisodeState, Step]:
        physical, reward, terminated = dynamics(env_state.physical, action, *((chance,) if noise else ()))
        physical = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), physical, env_state.physical)
        terminated, t = jnp.asarray(terminated, bool), env_state.t + 1
        truncated = (t >= time_limit) & ~terminated
        outcome = jnp.asarray(reward, jnp.float32), terminated, truncated
        if num_agents > 1:
            outcome = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_agents,)), outcome)
        return EpisodeState(physical, t), Step(observed(physical), *outcome, info=info(physical) if info else ())

    def ends_together() -> bool:
        """Returns whether ``dynamics`` has one flag for all agents; False if it cannot be traced, told elsewhere."""
        seats = lambda like: jax.ShapeDtypeStruct((num_agents, *like.shape), like.dtype)
        action = jax.tree.map(seats, spaces.struct(action_space))
        try:
            level, chance = (jax.eval_shape(lambda key, f=f: f(key, ()), jax.random.key(0)) for f in (levels, drawn))
            ended = jax.eval_shape(dynamics, jax.eval_shape(initial, level), action, *((chance,) if noise else ()))[2]
        except RAISED:
            return False
        return ended.shape == ()

    drawn = noise or no_noise
    env = Env(name, levels, begin, drawn, step, observation_space, action_space, legal, num_agents)
    if info:
        of_level = lambda key: info(initial(levels(key, ())))
        env = env._replace(info_names=tuple(jax.eval_shape(of_level, jax.random.key(0))))
    return env._replace(ends_together=ends_together()) if num_agents > 1 else env


def one_level(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws nothing: returns the levels ``[*shape]`` of episodes that all begin alike."""
    return jnp.zeros(shape)


def no_noise(key: Key, shape: tuple[int, ...]) -> tuple[()]:
    """Draws nothing: returns the noise of deterministic steps."""
    return ()


def box(low: Any, high: Any) -> Box:
    """Makes a float32 `Box` of vectors with these bounds, one per element.

    The bounds are numpy arrays, or jax arrays if one is traced.
    """
    return Box(_bound(low), _bound(high), (len(low),), jnp.float32)


def _bound(values: Any) -> Any:
    """Returns bounds as a float32 array: numpy's, or jax's if a value is traced."""
    return spaces.array_namespace(*values).array(values, dtype=np.float32)
