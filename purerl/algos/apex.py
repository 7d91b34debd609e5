"""Ape-X DQN (Horgan et al. 2018, arXiv 1803.00933, Algorithms 1 and 2) with its many actors in one program.

Each actor has an epsilon of its own and computes the first priorities of what it collects. One learner takes steps of
double Q-learning with dueling streams and n-step returns.
"""

from typing import NamedTuple, Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import dqn
from purerl.algos.algorithm import Algorithm
from purerl.algos.dqn import problems
from purerl.learners.families import action_values
from purerl.replay.fixed import Stored
from purerl.types import Array, Dataset, Env, Learner, Outcome, Trainer


@cfg.config(
    num_envs=16,
    num_updates=32,
    capacity=20_000,
    dueling=True,
    prioritised=True,
    importance_exponent_end=0.4,
    epsilon_start=0.4,
    epsilon_end=0.4,
    epsilon_ladder=7.0,
)
class ApexConfig(dqn.DQNConfig):
    """Settings of Ape-X.

    Environments are actors. There are twice as many as DQN has, and each frame has twice as many updates as with DQN.
    The replay is small: with one of 100,000 steps values stay low until what the first policies collected has been
    overwritten.
    """


class Known(NamedTuple):
    """Action values at the time of acting: that of the action taken, and the largest of all, both ``[B]``."""

    taken: Array
    best: Array


def known(q: Array, action: Array) -> Known:
    """Picks what is recorded of action values ``[B, A]`` and actions ``[B]``."""
    return Known(jnp.take_along_axis(q, action[:, None], axis=1)[:, 0], jnp.max(q, axis=1))


def initial_priority(items: Outcome) -> Array:
    """Computes the sizes ``[N]`` of Q-learning's errors from the actor's values (Algorithm 1, ComputePriorities)."""
    return jnp.abs(items.reward + items.discount * items.next_extras.best - items.extras.taken)


def make_learner(config: ApexConfig, env: Env, **parts: Unpack[dqn.DQNParts]) -> Learner:
    """Makes Ape-X's `Learner`; the parts are those of `dqn.make_learner`."""
    return dqn.make_learner(config, env, record=known, **parts)


def make_trainer(config: ApexConfig, env: Env, learner: Learner, demos: Dataset | Stored | None = None) -> Trainer:
    """Makes one iteration as a `Trainer`, where `initial_priority` gives new experience its first priorities."""
    return action_values.make_trainer(config, env, learner, demos, initial=initial_priority)


apex = Algorithm(
    "apex",
    ApexConfig,
    problems,
    make_learner,
    make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={"image": {**dqn.IMAGE, "num_updates": 32, "capacity": 100_000, "epsilon_end": 0.4}},
)
