"""`reset` and `step` as they were, as they are half remembered, and classes that lack something."""

import gymnasium
import numpy as np
from gymnasium import spaces
from ten import Ten


class NoSeed(Ten):
    """`reset` takes no seed."""

    def reset(self, *, options=None):
        return super().reset()


class Nothing(Ten):
    """`reset` takes nothing."""

    def reset(self):
        return super().reset()


class SeedOnly(Ten):
    """`reset` takes a seed and no options, and demands it."""

    def reset(self, seed):
        return super().reset(seed=seed)


class ObsOnly(Ten):
    """`reset` returns the observation, without info."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class NoneInfo(Ten):
    """`reset` and `step` return None in place of info."""

    def told(self):
        return None


class Four(Ten):
    """`step` returns four values, as before Gymnasium."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class Old(Four):
    """All of it: `reset` takes nothing and returns the observation, `step` returns four values."""

    def reset(self):
        return super().reset(seed=0)[0]


class NoReturn(Ten):
    """`step` forgets to return."""

    def step(self, action):
        super().step(action)


class Mistaken(Ten):
    """`step` has a mistake of its own, a `TypeError`, which is not the protocol's."""

    def paid(self, action):
        return len(3)


class LateSpaces(Ten):
    """The spaces are set in `reset`."""

    observation_space = action_space = None

    def reset(self, *, seed=None, options=None):
        self.observation_space, self.action_space = Ten.observation_space, Ten.action_space
        return super().reset(seed=seed)


class NewSpaces(Ten):
    """The space grows in the second `reset`, and the observation with it."""

    count = 0

    def reset(self, *, seed=None, options=None):
        self.count += 1
        self.observation_space = spaces.Box(-1, 1, (2 if self.count < 3 else 3,), np.float32)
        return super().reset(seed=seed)


class OtherShape(Ten):
    """The observation has another shape in step 4."""

    def seen(self):
        return np.zeros(3 if self.t == 4 else 2, np.float32)


class LackingKey(Ten):
    """The dictionary lacks a key in step 4."""

    observation_space = spaces.Dict({"near": spaces.Box(-1, 1, (2,)), "far": spaces.Box(-1, 1, (2,))})

    def seen(self):
        return {key: np.zeros(2, np.float32) for key in ("near", "far") if key == "near" or self.t != 4}


class NoMetadata(Ten):
    """Has None for metadata."""

    metadata = None


class NotGymnasium:
    """Has the methods and does not inherit."""

    observation_space, action_space = Ten.observation_space, Ten.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Flags(Ten):
    """Flags that are numbers of numpy, and a reward of shape [1]."""

    def over(self, last):
        return np.int64(0), np.array([last])


class Lists(Ten):
    """Observations that are lists of Python's numbers."""

    def seen(self):
        return [0.0, 0.0]


class Wrapped(gymnasium.Wrapper):
    """A wrapper whose `reset` takes nothing, around an environment that takes a seed."""

    def __init__(self):
        super().__init__(Ten())

    def reset(self):
        return self.env.reset()
