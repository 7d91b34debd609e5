"""Functions from `Env` to `Env`, most of which change what is observed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, Key, PyTree, Step


class StackState(NamedTuple):
    """The state of the environment within, and the stack that the policy sees next ``[..., num_frames]``."""

    inner: PyTree
    frames: PyTree


def frame_stack(env: Env, num_frames: int) -> Env:
    """Observations become the last ``num_frames`` of the episode, along a new last axis, the newest last.

    Mnih et al. 2015, Methods, "Preprocessing". The first observation of an episode fills the whole stack. ``next_obs``
    is the stack that ends with the true next observation; none spans two episodes. Shapes: ``[H, W]`` becomes
    ``[H, W, num_frames]``, which `networks.torso` takes for an image; ``[H, W, C]`` becomes ``[H, W, C, num_frames]``,
    which goes to its `MLP`. Of a tree of observations every leaf is stacked. Raises `ConfigError` for ``num_frames``
    that is no whole number >= 1, and for observations with a leaf that is no `Box`.
    """
    if type(num_frames) is not int or num_frames < 1:
        raise ConfigError(f"env = {env.name!r}: frame_stack = {num_frames!r}: must be a whole number >= 1")
    space = env.observation_space
    for leaf in spaces.leaves(space):
        _needs(Box, env, "observation", leaf, "frame_stack")

    def fill(obs: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, num_frames)), obs)

    def push(frames: PyTree, obs: PyTree) -> PyTree:
        return jax.tree.map(lambda old, new: jnp.concatenate([old[..., 1:], new[..., None]], axis=-1), frames, obs)

    def reset(key: Key) -> tuple[StackState, PyTree]:
        inner, obs = env.reset(key)
        return StackState(inner, fill(obs)), fill(obs)

    def step(noise: PyTree, env_state: StackState, action: Array) -> tuple[StackState, Step]:
        inner, step = env.step(noise, env_state.inner, action)
        next_obs, last = push(env_state.frames, step.next_obs), step.terminated | step.truncated
        obs = jax.tree.map(lambda first, other: jnp.where(last, first, other), fill(step.obs), next_obs)
        return StackState(inner, obs), step._replace(obs=obs, next_obs=next_obs)

    def stacked(leaf: Box) -> Box:
        low, high = (bound if np.ndim(bound) == 0 else bound[..., None] for bound in (leaf.low, leaf.high))
        return Box(low, high, (*leaf.shape, num_frames), leaf.dtype, num_frames)

    inner_legal = env.legal
    return env._replace(
        reset=reset,
        step=step,
        observation_space=spaces.tree_map(stacked, space),
        legal=(lambda obs: inner_legal(jax.tree.map(lambda x: x[..., -1], obs))) if inner_legal else None,
    )


def show_last(env: Env) -> Env:
    """Observations become one float32 vector ``[D + A + 1]``: flattened, then the last action one-hot, then its reward.

    The inputs of R2D2 (Kapturowski et al. 2019) and NGU (Badia et al. 2020, arXiv 2002.06038). Action and reward are
    zeros at the beginning of an episode; ``next_obs`` shows those that led to it. Raises `ConfigError` for observations
    that are no `Box` and actions that are not `Discrete`.
    """
    space = _needs(Box, env, "observation", env.observation_space, "show_last")
    if env.legal:
        raise ConfigError(f"env = {env.name!r}: has illegal actions, which show_last would hide")
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
    return env._replace(reset=reset, step=step, observation_space=vector)


class Masked(NamedTuple):
    """The state of the environment within, and what the policy sees next."""

    inner: PyTree
    obs: PyTree


def mask_nonfinite(env: Env) -> Env:
    """An environment that shows or pays what is not finite begins anew, so that no such number leaves it.

    The step counts as cut off: truncated, with reward 0, and with the last finite observation as ``next_obs``. So a
    replay that does not store ``next_obs`` does not learn from it, and an estimate bootstraps from that observation. A
    new beginning is drawn for every step. Without the wrapper such a number ends a training, which is frozen.
    """

    def reset(key: Key) -> tuple[Masked, PyTree]:
        inner, obs = env.reset(key)
        return Masked(inner, obs), obs

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[PyTree, Key]:
        return env.noise(key, shape), jax.random.split(jax.random.fold_in(key, 1), shape)

    def step(noise: tuple[PyTree, Key], env_state: Masked, action: Array) -> tuple[Masked, Step]:
        inner, step = env.step(noise[0], env_state.inner, action)
        shown = jax.tree.leaves((step.obs, step.next_obs, step.reward))
        floats = [x for x in shown if jnp.issubdtype(x.dtype, jnp.inexact)]
        wrong = ~jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
        first, obs = env.reset(noise[1])
        choose = lambda new, old: jax.tree.map(lambda n, o: jnp.where(wrong, n, o), new, old)  # noqa: E731
        none = jnp.zeros_like(step.terminated)
        cut = Step(obs, env_state.obs, jnp.zeros_like(step.reward), none, ~none)
        step = choose(cut, step)
        return Masked(choose(first, inner), step.obs), step

    return env._replace(reset=reset, noise=noise, step=step)


def _needs(kind: type, env: Env, role: str, space: Space, wrapper: str) -> Any:
    if not isinstance(space, kind):
        raise ConfigError(
            f"env = {env.name!r}: has {type(space).__name__} {role}s; {wrapper} needs {kind.__name__} {role}s"
        )
    return space
