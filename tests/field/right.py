"""Kinds that were right before any of this, and are to stay so."""

import os

import numpy as np
from gymnasium import spaces
from ten import Ten


class Starts(Ten):
    """A `Discrete` of actions that begins at -3."""

    action_space = spaces.Discrete(3, start=-3)

    def paid(self, action):
        assert action in (-3, -2, -1), action
        return 1.0


class Nested(Ten):
    """Spaces within spaces, the keys of the observations in another order than those of the space."""

    observation_space = spaces.Dict(
        {"b": spaces.Discrete(3), "a": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])}
    )

    def seen(self):
        return {"a": (np.zeros(2, np.float32), np.ones(2, np.int8)), "b": np.int64(2)}


class Buffer(Ten):
    """Writes every observation into one array."""

    def __init__(self):
        super().__init__()
        self.array = np.zeros(2, np.float32)

    def seen(self):
        self.array[:] = self.t / 10
        return self.array


class NanOnce(Ten):
    """One observation of each copy is not a number."""

    count = 0

    def seen(self):
        self.count += 1
        return np.full(2, np.nan if self.count == 25 else 0.0, np.float32)


class Dies(Ten):
    """The process of the copy that makes the file dies in its 20th step."""

    count = 0

    def paid(self, action):
        self.count += 1
        if self.count == 20 and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(9)
        return 1.0
