"""CartPole whose every step waits, as one does that talks to a slow simulator: ``--env slow_env:make``."""

import time
from typing import Any

import gymnasium


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
