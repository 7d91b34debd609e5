"""The environment that most others here vary, and the file in which instances are counted.

An episode has ten steps, each paid 1, so its return is 10. If `COUNTS` is set, an instance writes a line into the file
that it names when it is made, when it is first stepped, when an episode ends and when it is closed.
"""

import itertools
import os
import threading

import gymnasium
import numpy as np
from gymnasium import spaces

COUNTS = "FIELD_COUNTS"
"""The variable that names the file: lines of a word, the process, the thread, the instance and a value."""
_numbers = itertools.count()


def note(word, number=0, value=0):
    """Writes a line, whole, into the file of counts, if there is one."""
    if path := os.environ.get(COUNTS):
        with open(path, "a") as file:
            file.write(f"{word} {os.getpid()} {threading.get_native_id()} {number} {value}\n")


class Counts:
    """Counts an instance, which calls `made`, `moved` and `ended`."""

    def made(self):
        self.number, self.steps, self.stepped = next(_numbers), 0, False
        note("made", self.number)

    def moved(self):
        if not self.stepped:
            self.stepped = True
            note("stepped", self.number)
        self.steps += 1

    def ended(self):
        note("steps", self.number, self.steps)
        self.steps = 0

    def close(self):
        self.ended()
        note("closed", self.number)


class Ten(Counts, gymnasium.Env):
    """Ten steps, each paid 1, then the episode is truncated. Shows zeros."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length = 10

    def __init__(self):
        self.made()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), self.told()

    def step(self, action):
        self.moved()
        self.t += 1
        last = self.t >= self.length
        if last:
            self.ended()
        return self.seen(), self.paid(action), *self.over(last), self.told()

    def seen(self):
        """The observation."""
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def paid(self, action):
        """The reward."""
        return 1.0

    def over(self, last):
        """Whether the episode terminated, and whether it was truncated."""
        return False, last

    def told(self):
        """The info."""
        return {}
