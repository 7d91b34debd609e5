"""A module that changes and is reloaded between two trainings: 10, then 50."""

import importlib
from pathlib import Path

import jax
import numpy as np

import purerl
from purerl import envs, ppo

SOURCE = """
from ten import Ten

class Mine(Ten):
    def paid(self, action):
        return {pay}
"""


def trained():
    config = ppo.Config(num_envs=2, num_steps=16, total_steps=64, hidden_sizes=(8,))
    result = purerl.train_in_chunks(ppo.make_trainer(config, envs.make("changing:Mine")), jax.random.key(0), 1)
    return float(np.asarray(result.metrics["episode_return"])[-1])


if __name__ == "__main__":
    Path("changing.py").write_text(SOURCE.format(pay="1.0"))
    print("return", trained())
    import changing

    Path("changing.py").write_text(SOURCE.format(pay="2.0 + 3.0"))
    importlib.reload(changing)
    print("return", trained())
