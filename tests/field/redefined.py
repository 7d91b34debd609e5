"""A class of the script itself, trained twice, the second time redefined, as by a notebook's cell: 10, then 50."""

import jax
import numpy as np
from ten import Ten

import purerl
from purerl import envs, ppo


class Mine(Ten):
    """Pays 1."""


def trained():
    config = ppo.Config(num_envs=2, num_steps=16, total_steps=64, hidden_sizes=(8,))
    result = purerl.train_in_chunks(ppo.make_trainer(config, envs.make("__main__:Mine")), jax.random.key(0), 1)
    return float(np.asarray(result.metrics["episode_return"])[-1])


if __name__ == "__main__":
    print("return", trained())

    class Mine(Mine):
        """Pays 5."""

        def paid(self, action):
            return 5.0

    print("return", trained())
