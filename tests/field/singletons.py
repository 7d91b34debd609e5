"""The same instance each time, and what can exist once."""

import functools
import itertools

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from ten import Ten


class Counter(Ten):
    """Shows the step of its episode."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)

    def seen(self):
        return np.full(1, self.t, np.float32)

    def over(self, last):
        return last, False


@functools.cache
def kept(number):
    """Returns an instance, which is made once."""
    return Counter()


_calls = itertools.count()


def same():
    """Returns the same instance each time."""
    return kept(0)


def wrapped():
    """Returns the same instance each time, in another wrapper."""
    return TimeLimit(kept(0), 10)


def turns():
    """Returns two instances by turns."""
    return kept(next(_calls) % 2)


class Once(Counter):
    """Can be made once in a process."""

    count = 0

    def __init__(self):
        if Once.count:
            raise RuntimeError("the simulator can be started once per process")
        Once.count += 1
        super().__init__()


class OneAlive(Counter):
    """One at a time can be alive in a process."""

    alive = 0

    def __init__(self):
        if OneAlive.alive:
            raise RuntimeError("another simulator is alive in this process")
        OneAlive.alive += 1
        super().__init__()

    def close(self):
        super().close()
        OneAlive.alive -= 1
