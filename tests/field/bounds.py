"""Actions of a `Box` with flat dimensions, in which low equals high."""

import numpy as np
from gymnasium import spaces
from ten import Ten

BOUNDS = ([-1, 2], [1, 2]), ([2, 2], [2, 2]), ([0, -1], [0, 1])
"""Low and high: one dimension is flat, all are, and one is 0 whatever is done."""


class Flat(Ten):
    """Demands actions that are within the bounds."""

    def __init__(self, flat=0):
        super().__init__()
        low, high = BOUNDS[flat]
        self.action_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))

    def paid(self, action):
        assert np.isfinite(action).all(), action
        assert self.action_space.contains(action), (action, action.dtype)
        return 1.0

    def seen(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)
