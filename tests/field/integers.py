"""Observations that are integers of all sizes, and numbers that are too large for float32."""

import numpy as np
from gymnasium import spaces
from ten import Ten

VALUES = (
    (np.uint8, 250),
    (np.int8, -120),
    (np.int16, 30_000),
    (np.uint16, 60_000),
    (np.uint32, 2**32 - 7),
    (np.int64, 2**31 + 5),
    (np.uint64, 2**63 + 5),
    (np.float64, 1e300),
)


class Ints(Ten):
    """Shows the same value of a dtype each time; the space allows all values of the dtype."""

    def __init__(self, kind=0):
        super().__init__()
        dtype, self.value = VALUES[kind]
        limits = np.finfo(dtype) if dtype is np.float64 else np.iinfo(dtype)
        self.observation_space = spaces.Box(limits.min, limits.max, (3,), dtype)

    def seen(self):
        return np.full(3, self.value, self.observation_space.dtype)


class Promised(Ten):
    """The space promises at most 1000; the fifth step shows a time in nanoseconds."""

    observation_space = spaces.Box(0, 1000, (2,), np.int64)

    def seen(self):
        return np.full(2, 1_700_000_000_000_000_000 if self.t == 5 else self.t, np.int64)


class Scalar(Ten):
    """A `Discrete` observation: its start beyond int32, or many values."""

    def __init__(self, kind=0):
        super().__init__()
        self.observation_space = (spaces.Discrete(5, start=2**33), spaces.Discrete(2**33))[kind]
        self.value = (2**33 + 3, 2**32 + 7)[kind]

    def seen(self):
        return np.int64(self.value)


class Huge(Ten):
    """Numbers that float32 has, whose squares it has not."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def seen(self):
        return np.full(2, 1e30 * (1 + self.t), np.float32)


class Reward(Ten):
    """Rewards that are no numbers, or that float32 lacks."""

    def __init__(self, kind=0):
        super().__init__()
        self.reward = ("1.0 point", None, np.ones(2), 1e300)[kind]

    def paid(self, action):
        return self.reward
