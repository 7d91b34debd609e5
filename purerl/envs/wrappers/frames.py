"""A wrapper whose observations are the last ones of the episode."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.wrappers.kinds import COUNT, takes
from purerl.envs.wrappers.parts import holding, needs, needs_one_agent
from purerl.spaces import Box
from purerl.types import Array, Env, PyTree, Step


class StackState(NamedTuple):
    """The state of the environment within, and the stack that was observed last ``[..., num_frames]``."""

    inner: PyTree
    frames: PyTree


@takes(COUNT)
def frame_stack(env: Env, num_frames: int) -> Env:
    """Stacks the last ``num_frames`` observations of the episode along a new last axis, the newest last.

    Mnih et al. 2015, Methods, "Preprocessing". The first observation of an episode fills the whole stack. ``next_obs``
    is the stack that ends with the true next observation; none spans two episodes. Shapes: ``[H, W]`` becomes ``[H, W,
    num_frames]``, which `networks.torso` takes for an image; ``[H, W, C]`` becomes ``[H, W, C, num_frames]``, which
    goes to its `MLP`. In a tree of observations every leaf is stacked.

    Raises:
        ConfigError: If ``num_frames`` is no whole number >= 1, if a leaf of the observations is no `Box`, or if there
            are several agents.
    """
    needs_one_agent(env, "frame_stack")
    space = env.observation_space
    for leaf in spaces.leaves(space):
        needs(Box, env, "observation", leaf, "frame_stack")

    def fill(obs: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, num_frames)), obs)

    def push(frames: PyTree, obs: PyTree) -> PyTree:
        return jax.tree.map(lambda old, new: jnp.concatenate([old[..., 1:], new[..., None]], axis=-1), frames, obs)

    def hold(inner: PyTree, obs: PyTree) -> tuple[StackState, PyTree]:
        frames = fill(obs)
        return StackState(inner, frames), frames

    def step(noise: PyTree, env_state: StackState, action: Array) -> tuple[StackState, Step]:
        inner, step = env.step(noise, env_state.inner, action)
        frames = push(env_state.frames, step.next_obs)
        return StackState(inner, frames), step._replace(next_obs=frames)

    def stacked(leaf: Box) -> Box:
        bounds = (np.asarray(b) if isinstance(b, list | tuple) else b for b in (leaf.low, leaf.high))
        low, high = (bound if np.ndim(bound) == 0 else bound[..., None] for bound in bounds)
        return Box(low, high, (*leaf.shape, num_frames), leaf.dtype, num_frames)

    inner_legal = env.legal
    return holding(
        env,
        hold,
        step,
        observation_space=spaces.tree_map(stacked, space),
        legal=(lambda obs: inner_legal(jax.tree.map(lambda x: x[..., -1], obs))) if inner_legal else None,
    )
