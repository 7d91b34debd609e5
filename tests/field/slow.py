"""Slow steps, a slow reset, and a step that hangs."""

import time

from ten import Ten


class Slow(Ten):
    """Each step takes ``seconds``; the first reset takes ``begin``; step ``hang`` never returns."""

    def __init__(self, seconds=0.5, begin=0.0, hang=0):
        super().__init__()
        self.seconds, self.begin, self.hang = seconds, begin, hang

    def reset(self, *, seed=None, options=None):
        time.sleep(self.begin)
        return super().reset(seed=seed)

    def paid(self, action):
        time.sleep(self.seconds if self.t != self.hang else 1e6)
        return 1.0
