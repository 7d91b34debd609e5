"""Environments that draw: which `render_mode` arrives when."""

import numpy as np
from gymnasium.envs.registration import register
from ten import Ten, note


class Window(Ten):
    """Draws in each step if it has a `render_mode`, whose default is "human"; ``fragile``: cannot be closed at once."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}

    def __init__(self, render_mode="human", fragile=0):
        super().__init__()
        note(f"mode_{render_mode}", self.number)
        self.render_mode, self.fragile = render_mode, fragile

    def reset(self, *, seed=None, options=None):
        self.viewer = "a window"
        return super().reset(seed=seed)

    def paid(self, action):
        if self.render_mode is not None:
            note("drew", self.number)
        return 1.0

    def render(self):
        note("drew", self.number)
        return np.zeros((20, 20, 3), np.uint8)

    def close(self):
        super().close()
        if self.fragile:
            self.viewer += " that is closed"


def handed(**options):
    """A function that hands on what it is given: it has no parameter called `render_mode`, and takes it."""
    return Window(**options)


register("FieldWindow-v0", entry_point="window:Window")
