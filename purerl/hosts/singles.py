"""Single environments of Gymnasium, one after the other in this thread."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from purerl.errors import ConfigError
from purerl.hosts import leaves
from purerl.hosts.bundle import Leaves
from purerl.hosts.leaves import MASK
from purerl.hosts.rows import Ends, Rows, Which


def serial(envs: Sequence[Any], masked: bool) -> Rows:
    """Returns rows that step ``envs``, copies of one environment.

    Copy ``i`` begins its first episode with seed ``i`` and the others without one, so that each depends on its own seed
    and actions alone. ``masked``: ``info`` has a mask, which becomes a part of the observation.
    """
    space, actions = observed(envs[0].observation_space, envs[0].action_space, masked), envs[0].action_space
    gather, code = leaves.gatherer(space), leaves.coder(actions, "action_space")
    steps = [env.step for env in envs]
    seeds: list[int | None] = [None] * len(envs)

    def seed(given: np.ndarray) -> None:
        seeds[:] = given.tolist()

    def begin(which: Which) -> Leaves:
        observations = []
        for i in range(len(envs)) if which is None else which:
            obs, info = envs[i].reset(seed=seeds[i])
            seeds[i] = None
            observations.append({"obs": obs, MASK: info[MASK]} if masked else obs)
        return gather(observations)

    def step(action: np.ndarray, which: Which) -> Ends:
        given = code.separate(code.decode(action))
        chosen = steps if which is None else [steps[i] for i in which]
        turns = [one(each) for one, each in zip(chosen, given, strict=True)]
        obs, reward, terminated, truncated, info = zip(*turns, strict=True)
        if masked:
            obs = tuple({"obs": x, MASK: each[MASK]} for x, each in zip(obs, info, strict=True))
        return Ends(gather(obs), numbers(reward), np.array(terminated, bool), np.array(truncated, bool))

    def close() -> None:
        for env in envs:
            env.close()

    draws = envs[0].render_mode == "rgb_array"
    return Rows(len(envs), seed, begin, step, close, picture(lambda i: envs[i].render()) if draws else None)


def observed(observation_space: Any, action_space: Any, masked: bool) -> Any:
    """Returns the space of the observations: with a mask in ``info``, ``{"action_mask": ..., "obs": ...}``."""
    if not masked:
        return observation_space
    plain = leaves.coder(action_space, "action_space").space
    count = plain.n if isinstance(plain, spaces.Discrete) else plain.nvec.sum()
    return spaces.Dict({"obs": observation_space, MASK: spaces.Box(0, 1, (int(count),), np.int8)})


def numbers(reward: Sequence[Any]) -> np.ndarray:
    """Returns rewards as float32 ``[n]``. Raises `ValueError` for anything that is no number."""
    rewards = np.array(reward, np.float32)
    if rewards.ndim != 1:
        raise ValueError(f"a reward has shape {rewards.shape[1:]}, must be a number")
    return rewards


def picture(render: Callable[[int], Any]) -> Callable[[int], np.ndarray]:
    """Returns a function that makes a picture of ``render(i)``.

    It raises `ConfigError` if the library cannot draw one.
    """

    def frame(i: int) -> np.ndarray:
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # stops pygame from opening a sound card
        try:
            image = np.asarray(render(i))
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise ConfigError(f"no picture: {' '.join(str(error).split())}") from error
        if image.ndim != 3 or image.shape[-1] != 3:
            raise ConfigError(f"cannot be rendered: the environment returns an array of shape {image.shape}")
        return image.astype(np.uint8)

    return frame
