"""Lives of Atari's games as episodes."""

from typing import Any

import gymnasium


class Lives(gymnasium.Wrapper):
    """A wrapper of Gymnasium that terminates where a life is lost.

    The next episode goes on with the game, after a step without an action, and begins a new one only if the game is
    over or a seed is given.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._lives = 0
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, with the next life or with a new game."""
        if not self._over and seed is None:
            obs, _, terminated, truncated, info = self.env.step(0)
            self._over = bool(terminated or truncated)
        if self._over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        self._over, self._lives = False, _lives(self.env)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the game; the episode terminates if a life is lost."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._over = bool(terminated or truncated)
        lost, self._lives = _lives(self.env) < self._lives, _lives(self.env)
        return obs, reward, bool(terminated or lost), bool(truncated), info


def _lives(env: Any) -> int:
    return env.unwrapped.ale.lives()
