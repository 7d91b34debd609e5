"""Actions that are trees of choices and numbers, or integers of a Box. An action that is not of its space raises."""

import numpy as np
from gymnasium import spaces
from ten import Ten


class Ints(Ten):
    """A Box of integers that begin elsewhere than at 0. Every step pays 1; with ``aim`` only the best action does.

    Even and odd steps, which are seen, have other best actions.
    """

    action_space = spaces.Box(np.array([-2, 3]), np.array([2, 5]), (2,), np.int64)

    def __init__(self, aim=0):
        super().__init__()
        self.aim = aim

    def seen(self):
        return np.array([self.t % 2, 0], np.float32)

    def paid(self, action):
        assert self.action_space.contains(action), action
        return float(self.worth(action, (self.t - 1) % 2)) if self.aim else 1.0

    def worth(self, action, odd):
        """What an action pays in a step, at most 1."""
        return 1 - abs(action[0] - (2 if odd else -2)) - abs(action[1] - 4)


class Both(Ints):
    """A Tuple of a side, how far, two bits, and a number from 4."""

    action_space = spaces.Tuple(
        [
            spaces.Discrete(2),
            spaces.Box(-1, 1, (2,), np.float64),
            spaces.MultiBinary([2, 1]),
            spaces.Discrete(3, start=4),
        ]
    )

    def worth(self, action, odd):
        side, far, bits, number = action
        return 1 - (side != odd) / 4 - ((far - [0.5, -0.5]) ** 2).sum() - (bits == 0).sum() / 8 - (number != 5) / 4


class Aimed(Ints):
    """A Dict of a side, how far, and a gear from 1. A mask in ``info`` forbids a side in turn, and gear 2."""

    action_space = spaces.Dict(
        {"side": spaces.Discrete(3), "far": spaces.Box(0, 4, (), np.float32), "gear": spaces.Box(1, 3, (1,), np.int8)}
    )

    def told(self):
        self.sides = np.array([1, self.t % 2, (self.t + 1) % 2], np.int8)
        return {"action_mask": {"side": self.sides, "far": None, "gear": np.array([1, 0, 1], np.int8)}}

    def paid(self, action):
        assert self.sides[action["side"]] and action["gear"][0] != 2, f"illegal action {action} at {self.t}"
        return super().paid(action)

    def worth(self, action, odd):
        return 1 - (action["side"] == 0) / 2 - (action["far"] - 1 - odd) ** 2 / 4 - (action["gear"][0] != 3) / 4
