"""Returns of different sizes side by side, large ones, and small ones that add up."""

import os

import numpy as np
from ten import Ten

RICH = "FIELD_RICH"
"""The variable that names a file that is not there yet: the copy that makes it, in its first step, is the rich one."""


class Mixed(Ten):
    """One copy never ends and is paid 1e5 a step; the others end after 10 steps with return 10."""

    rich = None

    def step(self, action):
        if self.rich is None:
            try:
                os.close(os.open(os.environ[RICH], os.O_CREAT | os.O_EXCL))
                self.rich, self.length = True, 10**9
            except FileExistsError:
                self.rich = False
        return super().step(action)

    def paid(self, action):
        return 1e5 if self.rich else 1.0


class Large(Ten):
    """Pays 10,000,001 in each of 1000 steps: 10,000,001,000."""

    length = 1000

    def paid(self, action):
        return 10_000_001.0


class Small(Ten):
    """Pays 0.001 in each of 2000 steps: 2, to one part in a million."""

    length = 2000

    def paid(self, action):
        return 0.001


class Cancels(Ten):
    """Pays 3e7, then 0.25 in eight steps, then -3e7: 2."""

    def paid(self, action):
        return {1: 3e7, 10: -3e7}.get(self.t, 0.25)


class Typed(Ten):
    """Pays 1, as numbers of several types."""

    def __init__(self, kind=0):
        super().__init__()
        self.one = (1, True, np.float32(1), np.float16(1), np.array(1.0))[kind]

    def paid(self, action):
        return self.one
