"""Wrappers that change rewards."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from purerl.config import Range
from purerl.envs.wrappers.kinds import number, takes
from purerl.types import Array, Env, PyTree, Step


@takes(number(Range(0, open_low=True)))
def reward_scale(env: Env, scale: Any) -> Env:
    """Multiplies rewards by ``scale`` (may be traced). Raises `ConfigError` for anything that is no number > 0."""
    scaled = _paying(env, lambda reward: reward * scale)
    if env.design is None or env.design.solved is None:
        return scaled
    return scaled._replace(design=env.design._replace(solved=env.design.solved * scale))


@takes(number(Range(0, open_low=True)))
def reward_clip(env: Env, limit: Any) -> Env:
    """Clips rewards to [-``limit``, ``limit``] (may be traced). Mnih et al. 2015, Methods, clip to 1.

    Raises:
        ConfigError: If the limit is no number > 0.
    """
    return _paying(env, lambda reward: jnp.clip(reward, -limit, limit))


def _paying(env: Env, change: Callable[[Array], Array]) -> Env:
    """Returns ``env`` with rewards changed, in the type that they had."""

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, step = env.step(noise, env_state, action)
        return env_state, step._replace(reward=jnp.asarray(change(step.reward), step.reward.dtype))

    return env._replace(step=step)
