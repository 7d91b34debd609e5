"""MiniGrid, whose observations have a text, with its wrappers and without; parts that cannot be read, of our own."""

import gymnasium
import numpy as np
from gymnasium import spaces
from ten import Ten


def bare():
    import minigrid  # noqa: F401

    return gymnasium.make("MiniGrid-Empty-5x5-v0")


def img():
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(bare())


def full():
    from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

    return ImgObsWrapper(FullyObsWrapper(bare()))


class Mission(Ten):
    """A dictionary of numbers, a text and a sequence."""

    observation_space = spaces.Dict(
        {
            "near": spaces.Box(-1, 1, (2,), np.float32),
            "mission": spaces.Text(40),
            "tail": spaces.Sequence(spaces.Box(0, 9, (2,), np.int8)),
        }
    )

    def seen(self):
        return {"near": np.zeros(2, np.float32), "mission": "go to the door", "tail": ()}


class Only(Ten):
    """A text, no more: there is nothing to learn from."""

    observation_space = spaces.Text(40)

    def seen(self):
        return "go"
