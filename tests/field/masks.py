"""Masks of legal actions, in `info`, by a method, in the observation. Illegal actions raise."""

import numpy as np
from gymnasium import spaces
from ten import Ten

KINDS = "missing", "late", "list", "tuple", "bool", "float", "int64", "array"


class Masked(Ten):
    """Action 2 is never legal, action 0 in every second step; ``kind``, counted in `KINDS`, says how that is told.

    Where the mask comes late all actions are legal in the first step.
    """

    action_space = spaces.Discrete(4)

    def __init__(self, kind=7):
        super().__init__()
        self.kind = KINDS[kind]

    def told(self):
        self.legal = np.array([self.t % 2, 1, 0, 1], np.int8)
        if self.kind == "missing":
            return {"action_mask": self.legal} if self.t != 3 else {}
        if self.kind == "late":
            self.legal = self.legal if self.t else np.ones(4, np.int8)
            return {"action_mask": self.legal} if self.t else {}
        told = {"list": self.legal.tolist(), "bool": self.legal.astype(bool), "float": self.legal.astype(float)}
        told |= {"tuple": tuple(self.legal.tolist()), "int64": self.legal.astype(np.int64), "array": self.legal}
        return {"action_mask": told[self.kind]}

    def paid(self, action):
        assert self.legal[int(action)], f"illegal action {action} at {self.t}"
        return 1.0


class Method(Masked):
    """Tells it by `action_masks()` alone, as sb3-contrib asks for."""

    def told(self):
        self.legal = np.array([self.t % 2, 1, 0, 1], np.int8)
        return {}

    def action_masks(self):
        return self.legal.astype(bool)


class Stuck(Masked):
    """No action is legal in step 3."""

    def told(self):
        self.legal = np.full(4, self.t != 3, np.int8)
        return {"action_mask": self.legal}


class Short(Masked):
    """The mask has three elements for four actions."""

    def told(self):
        return {"action_mask": super().told()["action_mask"][:3]}
