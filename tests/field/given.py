"""`envs.make` with a class, a function and a spec of Gymnasium in place of a name: 10, 50 and at most 5."""

import sys

import gymnasium
import jax
import limits  # noqa: F401
import numpy as np
from ten import Ten

import purerl
from purerl import envs, ppo


class Five(Ten):
    """Pays 5."""

    def paid(self, action):
        return 5.0


def five():
    return Five()


def trained(what):
    config = ppo.Config(num_envs=2, num_steps=16, total_steps=64, hidden_sizes=(8,))
    result = purerl.train_in_chunks(ppo.make_trainer(config, envs.make(what)), jax.random.key(0), 1)
    return float(np.asarray(result.metrics["episode_return"])[-1])


if __name__ == "__main__":
    print("return", trained({"class": Ten, "function": five, "spec": gymnasium.spec("field/Ten-v0")}[sys.argv[1]]))
