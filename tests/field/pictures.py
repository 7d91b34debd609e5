"""Images with channels first and last, and stacks of frames by Gymnasium's wrapper."""

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from ten import Ten


class Pictures(Ten):
    """Random pictures of ``size`` x ``size``, in a dictionary if ``nested``."""

    def __init__(self, first=1, size=36, channels=3, nested=0):
        super().__init__()
        self.shape = (channels, size, size) if first else (size, size, channels)
        picture = spaces.Box(0, 255, self.shape, np.uint8)
        self.observation_space = spaces.Dict({"picture": picture}) if nested else picture
        self.nested = nested

    def seen(self):
        drawn = self.np_random.integers(0, 256, self.shape, np.uint8)
        return {"picture": drawn} if self.nested else drawn


def grey():
    """Four pictures without an axis of channels, stacked at the front."""
    return FrameStackObservation(Plain((36, 36)), 4)


def colour():
    """Four pictures of three channels, stacked at the front."""
    return FrameStackObservation(Plain((36, 36, 3)), 4)


def numbers():
    """Three vectors, stacked: no pictures."""
    return FrameStackObservation(Ten(), 3)


class Plain(Ten):
    """Black pictures of a shape."""

    def __init__(self, shape):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
