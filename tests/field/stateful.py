"""Wrappers that keep statistics, and episodes of very different lengths."""

import gymnasium
import numpy as np
from gymnasium import spaces
from ten import Ten


class Scaled(Ten):
    """Pays 1 for the action that the sign of the observation around 1000 says."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def seen(self):
        self.right = int(self.np_random.integers(2))
        return np.array([1000.0 + 2 * self.right - 1], np.float32)

    def step(self, action):
        right = self.right
        obs, _, *rest = super().step(action)
        return obs, float(action == right), *rest


def normalised():
    """Gymnasium's running statistics of observations."""
    return gymnasium.wrappers.NormalizeObservation(Scaled())


def rewarded():
    """Gymnasium's running statistics of returns."""
    return gymnasium.wrappers.NormalizeReward(Scaled())


class Centred(gymnasium.ObservationWrapper):
    """Somebody's own running mean, called `obs_rms` as elsewhere."""

    def __init__(self):
        super().__init__(Scaled())
        self.obs_rms, self.count = np.zeros(1), 0

    def observation(self, observation):
        self.count += 1
        self.obs_rms += (observation - self.obs_rms) / self.count
        return (observation - self.obs_rms).astype(np.float32)


class Uneven(Ten):
    """Of ten episodes one has 3000 steps, the others have 10."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.length = int(self.np_random.choice([10, 3000], p=[0.9, 0.1]))
        return obs, info

    def over(self, last):
        return last, False
