"""Functions from `Env` to `Env`. `TRANSFORMS` names those that every environment can have as parameters."""

from collections.abc import Callable
from typing import Any

from purerl.envs.wrappers.actions import action_repeat, sticky_actions
from purerl.envs.wrappers.beginnings import resets
from purerl.envs.wrappers.endings import mask_nonfinite, max_episode_steps
from purerl.envs.wrappers.frames import frame_stack
from purerl.envs.wrappers.parameters import randomise
from purerl.envs.wrappers.rewards import reward_clip, reward_scale
from purerl.envs.wrappers.talk import led, messages
from purerl.envs.wrappers.vectors import flatten, observation_mask, show_last
from purerl.types import Env

__all__ = [
    "TRANSFORMS",
    "action_repeat",
    "flatten",
    "frame_stack",
    "led",
    "mask_nonfinite",
    "max_episode_steps",
    "messages",
    "observation_mask",
    "randomise",
    "resets",
    "reward_clip",
    "reward_scale",
    "show_last",
    "sticky_actions",
]

TRANSFORMS: dict[str, Callable[[Env, Any], Env]] = {
    transform.__name__: transform
    for transform in (
        resets,
        mask_nonfinite,
        sticky_actions,
        action_repeat,
        max_episode_steps,
        reward_scale,
        reward_clip,
        flatten,
        observation_mask,
        show_last,
        frame_stack,
    )
}
"""The transforms by name, in the order in which they are put around an environment: the first is the innermost.

Each is ``(env, value) -> Env`` and raises `ConfigError` for values that are not of its kind. `randomise`, which comes
before all of them, is not among them, since it makes the environment.
"""
