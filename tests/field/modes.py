"""Parameters that are text, flags, lists and nulls."""

import json
import os

import numpy as np
from gymnasium import spaces
from ten import Ten

SEEN = "FIELD_SEEN"
"""The variable that names the file in which the parameters that arrived are written, a line for each instance."""


class Modes(Ten):
    """Takes text, a flag, a whole number, a number, a list and a null; refuses what is not of that type."""

    def __init__(self, mode="easy", slippery=True, size=5, rate=0.5, walls=(), target=None):
        if path := os.environ.get(SEEN):
            with open(path, "a") as file:
                file.write(json.dumps([mode, slippery, size, rate, list(walls), target]) + "\n")
        if mode not in ("easy", "hard"):
            raise ValueError(f"mode = {mode!r}: must be easy or hard")
        if not isinstance(slippery, bool):
            raise TypeError(f"slippery = {slippery!r}: must be a bool")
        super().__init__()
        self.observation_space = spaces.Box(-1, 1, (size,), np.float32)


def wide(**options):
    """Takes anything, as functions do that hand their parameters on."""
    return Modes(**options)
