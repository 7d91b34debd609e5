"""Several environments behind one interface, selected by an index, so that one program trains in any of them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs import chance
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, PyTree, Step


def union(envs: Sequence[Env]) -> Callable[[Array | int], Env]:
    """Returns ``choose(task)``: environment number ``task`` (int32, may be traced), in spaces common to all of them.

    Observations are flattened, cast to float32 and padded with zeros to the longest. There are as many discrete actions
    as the environment with the most has; the others take the action modulo their own number. Continuous actions lie in
    [-1, 1] and are scaled to the environment's bounds; surplus elements are ignored. Only the selected environment is
    stepped, unless ``task`` is mapped by `jax.vmap`; a level is a level of each. Episodes begin in the way that all
    environments name, or each in a state of its own.

    Raises:
        ConfigError: If action spaces are not all `Discrete` or all `Box`, of floats; an observation space is not a
            `Box`; actions are unbounded; or an environment has illegal actions.
    """
    kinds = {type(env.action_space) for env in envs}
    if kinds not in ({Discrete}, {Box}):
        raise ConfigError("envs = " + ", ".join(env.name for env in envs) + ": actions must be all Discrete or all Box")
    for env in envs:
        _check(env)
    width = max(int(np.prod(env.observation_space.shape)) for env in envs)
    actions = Discrete(max(env.action_space.n for env in envs)) if kinds == {Discrete} else _box(envs)

    def pad(obs: Array) -> Array:
        flat = obs.reshape(-1).astype(jnp.float32)
        return jnp.pad(flat, (0, width - flat.size))

    def keep(before: PyTree, begun: PyTree) -> PyTree:
        pairs = zip(envs, before, begun, strict=True)
        return tuple(env.keep(old, new) if env.keep else new for env, old, new in pairs)

    def redraw(key: Key, states: PyTree) -> PyTree:
        keys = jax.random.split(key, len(envs))
        return tuple(chance.redrawn(env, one, state) for env, one, state in zip(envs, keys, states, strict=True))

    keeps = any(env.keep for env in envs)
    told: dict[str, Any] = {name: any(getattr(env, name) for env in envs) for name in ("partly_observed", "hidden")}
    ways = {env.resets for env in envs}
    resets = ways.pop() if len(ways) == 1 else "every"

    def choose(task: Array | int) -> Env:
        def levels(key: Key, shape: tuple[int, ...]) -> PyTree:
            keys = jax.random.split(key, len(envs))
            return tuple(env.levels(one, shape) for env, one in zip(envs, keys, strict=True))

        def begin(all_levels: PyTree) -> tuple[PyTree, Array]:
            begun = [env.begin(level) for env, level in zip(envs, all_levels, strict=True)]
            states, observed = zip(*begun, strict=True)
            return states, jnp.stack([pad(obs) for obs in observed])[task]

        def noise(key: Key, shape: tuple[int, ...]) -> PyTree:
            keys = jax.random.split(key, len(envs))
            return tuple(env.noise(one, shape) for env, one in zip(envs, keys, strict=True))

        def branch(i: int) -> Callable[..., tuple[PyTree, Step]]:
            def step(noises: PyTree, states: PyTree, action: Array) -> tuple[PyTree, Step]:
                state, result = envs[i].step(noises[i], states[i], _own(envs[i], action))
                reward = jnp.asarray(result.reward, jnp.float32)
                result = result._replace(next_obs=pad(result.next_obs), reward=reward, info=())
                return (*states[:i], state, *states[i + 1 :]), result

            return step

        def step(noises: PyTree, states: PyTree, action: Array) -> tuple[PyTree, Step]:
            return jax.lax.switch(task, [branch(i) for i in range(len(envs))], noises, states, action)

        bound = np.float32(np.inf)
        name = "+".join(env.name for env in envs)
        space = Box(-bound, bound, (width,), jnp.float32)
        held: dict[str, Any] = {
            "keep": keep if keeps else None,
            "redraw": redraw if any(env.redraw for env in envs) else None,
        }
        return Env(name, levels, begin, noise, step, space, actions, resets=resets, **held, **told)

    return choose


def _check(env: Env) -> None:
    """Raises `ConfigError` if an environment cannot be part of a union, whatever the others are."""
    space = env.action_space
    if not isinstance(env.observation_space, Box):
        raise ConfigError(f"env = {env.name!r}: has {type(env.observation_space).__name__} observations; needs Box")
    if env.legal:
        raise ConfigError(f"env = {env.name!r}: has illegal actions; a union of environments has none")
    if spaces.is_whole(space):
        raise ConfigError(f"env = {env.name!r}: has Box actions of {jnp.dtype(space.dtype)}; must be floats")
    if isinstance(space, Box) and not all(np.all(np.isfinite(bound)) for bound in (space.low, space.high)):
        raise ConfigError(f"env = {env.name!r}: has actions without bounds")


def _box(envs: Sequence[Env]) -> Box:
    """Returns the union's continuous action space: vectors in [-1, 1] of the largest dimension."""
    return Box(-1.0, 1.0, (max(int(np.prod(env.action_space.shape)) for env in envs),), jnp.float32)


def _own(env: Env, action: Array) -> Array:
    """Returns the action of ``env`` that corresponds to an action of the union."""
    space = env.action_space
    if isinstance(space, Discrete):
        return jnp.remainder(action, space.n)
    own = action[: int(np.prod(space.shape))].reshape(space.shape)
    return space.low + 0.5 * (own + 1) * (jnp.asarray(space.high) - space.low)
