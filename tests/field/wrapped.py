"""Numbers in `info`, under wrappers and in vector environments."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeReward, RecordEpisodeStatistics, TimeLimit
from ten import Ten


class Success(Ten):
    """Every episode is a success, with a last distance of 0.5; text and arrays are told beside."""

    def over(self, last):
        return last, False

    def told(self):
        if self.t < self.length:
            return {"distance": 0.1, "text": "far"}
        return {"is_success": True, "distance": 0.5, "text": "near", "array": np.zeros(3)}


class Late(Success):
    """Tells of success at the end alone, as a number of numpy, and in a dictionary within."""

    def told(self):
        return {"is_success": np.bool_(True), "deep": {"score": np.float64(3.0)}} if self.t >= self.length else {}


def stats():
    return RecordEpisodeStatistics(Success())


def many():
    """The statistics of the true return, below a wrapper that changes rewards."""
    return NormalizeReward(RecordEpisodeStatistics(TimeLimit(Success(), 5)))


def vec(num_envs=1):
    return SyncVectorEnv([Success] * num_envs)


def same_step(num_envs=1):
    return SyncVectorEnv([Success] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def recorded(num_envs=1):
    return gymnasium.wrappers.vector.RecordEpisodeStatistics(vec(num_envs))


def no_count():
    """A vector environment from a function that has no `num_envs`."""
    return SyncVectorEnv([Success] * 4)
