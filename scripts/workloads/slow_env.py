"""Environments whose every step waits, as those do that talk to a slow simulator: ``--env slow_env:make``, which is
CartPole, and ``--env slow_env:batch``."""

import time
from typing import Any

import fast_env
import gymnasium
import numpy as np

from purerl.hosts.bundle import Batch, HostEnv, Turn


class Slow(gymnasium.Wrapper):
    """Waits so many seconds before each step, without using the CPU."""

    def __init__(self, env: gymnasium.Env, delay: float) -> None:
        super().__init__(env)
        self.delay = delay

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self.delay)
        return self.env.step(action)


def make(delay: float = 0.004) -> gymnasium.Env:
    """Gymnasium's CartPole-v1, each step of which takes ``delay`` seconds longer."""
    return Slow(gymnasium.make("CartPole-v1"), delay)


def batch(delay: float = 0.004, rows: int = 256) -> HostEnv:
    """`fast_env` as a batch, whose step takes ``delay`` seconds for ``rows`` environments, and in proportion for
    others."""
    fast = fast_env.make()

    def delayed(num_envs: int) -> Batch:
        plain = fast.batch(num_envs)

        def step(action: np.ndarray) -> Turn:
            time.sleep(delay * num_envs / rows)
            return plain.step(action)

        return plain._replace(step=step)

    return fast._replace(name="slow", batch=delayed)
