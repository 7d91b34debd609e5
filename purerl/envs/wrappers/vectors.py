"""Wrappers whose observations are one vector: all of an observation, some of it, or more than it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.wrappers.kinds import INDICES, switch, takes
from purerl.envs.wrappers.parts import needs, needs_all_legal, needs_one_agent, with_view
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, Leaf
from purerl.types import Array, Env, PyTree, Step


@switch
def flatten(env: Env) -> Env:
    """Makes one float32 vector ``[D]`` of an observation: every leaf flattened, in the order of `jax.tree.leaves`.

    `Discrete` leaves are one-hot, and so is every element of a `MultiDiscrete` one; numbers of a `Box` keep their
    value.

    Raises:
        ConfigError: If actions may be illegal: the mask must be in leaves that no normaliser changes, and a float32
            vector has none.
    """
    needs_all_legal(env, "flatten", "hide")
    space = env.observation_space
    low, high = (_joined([_flat_bounds(leaf)[i] for leaf in spaces.leaves(space)]) for i in (0, 1))
    vector = Box(low, high, low.shape, jnp.float32)

    def flat(obs: PyTree) -> Array:
        parts = spaces.tree_map(_flat, space, obs)
        return jnp.concatenate(jax.tree.leaves(parts), axis=-1)

    return with_view(env, flat, vector)


@takes(INDICES)
def observation_mask(env: Env, hidden: tuple[int, ...]) -> Env:
    """Hides the elements of observations with these indices, for example velocities: ``[D]`` becomes ``[D - hidden]``.

    They are taken out, not set to zero, so that nothing is learned of them and no network has weights for them.

    Raises:
        ConfigError: If observations are no vector, if they lack an index or are hidden altogether, or if actions may be
            illegal, which the hidden elements might tell.
    """
    needs_all_legal(env, "observation_mask", "hide")
    space = needs(Box, env, "observation", env.observation_space, "observation_mask")
    field = f"env = {env.name!r}: observation_mask = {','.join(map(str, hidden))!r}"
    if len(space.shape) != 1:
        raise ConfigError(f"{field}: observations {list(space.shape)} must be a vector; add flatten=1")
    shown = np.array([i for i in range(space.shape[0]) if i not in hidden], np.int32)
    if max(hidden) >= space.shape[0] or not shown.size:
        raise ConfigError(f"{field}: must be some of 0 to {space.shape[0] - 1}, and not all of them")
    low, high = (
        spaces.array_namespace(bound).broadcast_to(bound, space.shape)[shown] for bound in (space.low, space.high)
    )
    masked = with_view(env, lambda obs: obs[..., shown], Box(low, high, shown.shape, space.dtype))
    return masked._replace(partly_observed=True)


@switch
def show_last(env: Env) -> Env:
    """Makes one float32 vector ``[D + A + 1]`` of an observation, the last action one-hot, and its reward.

    The inputs of R2D2 (Kapturowski et al. 2019) and NGU (Badia et al. 2020, arXiv 2002.06038). Action and reward are
    zeros at the beginning of an episode; ``next_obs`` shows those that led to it.

    Raises:
        ConfigError: If observations are no `Box`, if actions are not `Discrete` or may be illegal, or if there are
            several agents.
    """
    needs_one_agent(env, "show_last")
    needs(Box, env, "observation", env.observation_space, "show_last")
    needs_all_legal(env, "show_last", "hide")
    num_actions = needs(Discrete, env, "action", env.action_space, "show_last").n
    plain = flatten(env)

    def begin(level: PyTree) -> tuple[PyTree, Array]:
        env_state, obs = plain.begin(level)
        return env_state, jnp.concatenate([obs, jnp.zeros(num_actions + 1)])

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, step = plain.step(noise, env_state, action)
        taken = jax.nn.one_hot(action, num_actions, dtype=jnp.float32)
        return env_state, step._replace(next_obs=jnp.concatenate([step.next_obs, taken, step.reward[None]]))

    low, high = plain.observation_space.low, plain.observation_space.high
    low = _joined([low, np.zeros(num_actions, np.float32), np.full(1, -np.inf, np.float32)])
    high = _joined([high, np.ones(num_actions, np.float32), np.full(1, np.inf, np.float32)])
    return plain._replace(begin=begin, step=step, observation_space=Box(low, high, low.shape, jnp.float32))


def _flat(leaf: Leaf, x: Array) -> Array:
    """Returns an element of a leaf, with any leading axes, as vectors ``[..., D]``."""
    if isinstance(leaf, Box):
        return jnp.asarray(x, jnp.float32).reshape(*x.shape[: x.ndim - len(leaf.shape)], math.prod(leaf.shape))
    if isinstance(leaf, Discrete):
        return jax.nn.one_hot(x, leaf.n, dtype=jnp.float32)
    columns = [jax.nn.one_hot(x[..., i], n, dtype=jnp.float32) for i, n in enumerate(leaf.sizes)]
    return jnp.concatenate(columns, axis=-1)


def _flat_bounds(leaf: Leaf) -> tuple[Any, Any]:
    """Returns the bounds of the results of `_flat`, ``[D]`` each."""
    if not isinstance(leaf, Box):
        size = leaf.n if isinstance(leaf, Discrete) else sum(leaf.sizes)
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    low, high = (
        spaces.array_namespace(bound).broadcast_to(bound, leaf.shape).reshape(-1) for bound in (leaf.low, leaf.high)
    )
    return low, high


def _joined(parts: list[Any]) -> Any:
    """Joins bounds, as float32: numpy's, or jax's if one is traced."""
    return spaces.array_namespace(*parts).concatenate([part.astype(np.float32) for part in parts])
