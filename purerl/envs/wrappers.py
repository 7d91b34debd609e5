"""Functions from `Env` to `Env` that change what is observed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, Key, PyTree, Step


class StackState(NamedTuple):
    """The state of the environment within, and the stack that the policy sees next ``[..., num_frames]``."""

    inner: PyTree
    frames: Array


def frame_stack(env: Env, num_frames: int) -> Env:
    """Observations become the last ``num_frames`` of the episode, along a new last axis, the newest last.

    Mnih et al. 2015, Methods, "Preprocessing". The first observation of an episode fills the whole stack. ``next_obs``
    is the stack that ends with the true next observation; none spans two episodes. Shapes: ``[H, W]`` becomes
    ``[H, W, num_frames]``, which `networks.torso` takes for an image; ``[H, W, C]`` becomes ``[H, W, C, num_frames]``,
    which goes to its `MLP`. Raises `ConfigError` for ``num_frames`` that is no whole number >= 1, and for observations
    that are no `Box`.
    """
    if type(num_frames) is not int or num_frames < 1:
        raise ConfigError(f"env = {env.name!r}: frame_stack = {num_frames!r}: must be a whole number >= 1")
    space = _needs(Box, env, "observation", env.observation_space, "frame_stack")

    def fill(obs: Array) -> Array:
        return jnp.broadcast_to(obs[..., None], (*space.shape, num_frames))

    def reset(key: Key) -> tuple[StackState, Array]:
        inner, obs = env.reset(key)
        return StackState(inner, fill(obs)), fill(obs)

    def step(noise: PyTree, env_state: StackState, action: Array) -> tuple[StackState, Step]:
        inner, step = env.step(noise, env_state.inner, action)
        next_obs = jnp.concatenate([env_state.frames[..., 1:], step.next_obs[..., None]], axis=-1)
        obs = jnp.where(step.terminated | step.truncated, fill(step.obs), next_obs)
        return StackState(inner, obs), step._replace(obs=obs, next_obs=next_obs)

    low, high = (bound if np.ndim(bound) == 0 else bound[..., None] for bound in (space.low, space.high))
    stacked = Box(low, high, (*space.shape, num_frames), space.dtype)
    return env._replace(reset=reset, step=step, observation_space=stacked, num_frames=num_frames)


def show_last(env: Env) -> Env:
    """Observations become one float32 vector ``[D + A + 1]``: flattened, then the last action one-hot, then its reward.

    The inputs of R2D2 (Kapturowski et al. 2019) and NGU (Badia et al. 2020, arXiv 2002.06038). Action and reward are
    zeros at the beginning of an episode; ``next_obs`` shows those that led to it. Raises `ConfigError` for observations
    that are no `Box` and actions that are not `Discrete`.
    """
    space = _needs(Box, env, "observation", env.observation_space, "show_last")
    num_actions = _needs(Discrete, env, "action", env.action_space, "show_last").n

    def join(obs: Array, action: Array, reward: Array) -> Array:
        return jnp.concatenate([jnp.asarray(obs, jnp.float32).reshape(-1), action, reward[None]])

    def first(obs: Array) -> Array:
        return join(obs, jnp.zeros(num_actions), jnp.zeros(()))

    def reset(key: Key) -> tuple[PyTree, Array]:
        env_state, obs = env.reset(key)
        return env_state, first(obs)

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, step = env.step(noise, env_state, action)
        next_obs = join(step.next_obs, jax.nn.one_hot(action, num_actions, dtype=jnp.float32), step.reward)
        obs = jnp.where(step.terminated | step.truncated, first(step.obs), next_obs)
        return env_state, step._replace(obs=obs, next_obs=next_obs)

    def bound(obs: Any, action: float, reward: float) -> Any:
        xp = jnp if isinstance(obs, jax.core.Tracer) else np
        more = np.array([action] * num_actions + [reward], np.float32)
        return xp.concatenate([xp.broadcast_to(obs, space.shape).reshape(-1).astype(np.float32), more])

    low, high = bound(space.low, 0.0, -np.inf), bound(space.high, 1.0, np.inf)
    vector = Box(low, high, low.shape, jnp.float32)
    return env._replace(reset=reset, step=step, observation_space=vector, num_frames=1)


def _needs(kind: type, env: Env, role: str, space: Space, wrapper: str) -> Any:
    if not isinstance(space, kind):
        raise ConfigError(
            f"env = {env.name!r}: has {type(space).__name__} {role}s; {wrapper} needs {kind.__name__} {role}s"
        )
    return space
