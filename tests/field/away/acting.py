"""Loads a run in a folder that lacks the environment's module, and acts on zeros of a shape."""

import os
import sys
from pathlib import Path

import jax
import numpy as np

import purerl
from purerl.types import Situation

if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    run = purerl.load("../run", trust=True)
    policy = jax.tree.map(lambda x: x[0], run.policy)
    here = Situation(np.zeros((1, *map(int, sys.argv[1:])), np.float32), run.learner.init_carry(1))
    action, _ = run.learner.exploit(policy, here, jax.random.key(0))
    print("action", np.asarray(action).tolist())
