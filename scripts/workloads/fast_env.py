"""An environment that costs next to nothing, as a batch of the host: ``--env fast_env:make``."""

import gymnasium
import numpy as np

from purerl.hosts.bundle import Batch, HostEnv, Leaves, Turn

SPACE = gymnasium.spaces.Box(-1, 1, (4,), np.float32)


def make(length: int = 100) -> HostEnv:
    """Episodes of ``length`` steps, which are truncated; every observation is the same, and action 1 is paid 1."""

    def batch(num_envs: int) -> Batch:
        time, obs, never = np.zeros(num_envs, np.int64), np.zeros((num_envs, 4), np.float32), np.zeros(num_envs, bool)

        def reset(seeds: np.ndarray) -> Leaves:
            time[:] = seeds % length  # so that they do not all end at once
            return (obs,)

        def step(action: np.ndarray) -> Turn:
            time[:] += 1
            truncated = time >= length
            time[truncated] = 0
            return Turn((obs,), action.astype(np.float32), never, truncated, (obs,))

        return Batch(reset, step, lambda: None)

    return HostEnv("fast", SPACE, gymnasium.spaces.Discrete(2), batch)
