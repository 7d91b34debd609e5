"""Ape-X DQN (Horgan et al. 2018, arXiv 1803.00933, Algorithms 1 and 2) with its many actors in one program.

Each actor has an epsilon of its own and gives what it collects its first priorities; one learner takes steps of double
Q-learning with dueling streams and returns over three steps.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import dqn
from purerl.algos.algorithm import Algorithm
from purerl.algos.dqn import problems
from purerl.learners.families import action_values
from purerl.types import Array, Env, Learner, Outcome, Trainer


@cfg.config
class Config(dqn.Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    num_envs: cfg.Count = 16
    """Number of actors, which are environments that step in parallel."""
    num_updates: cfg.Count = 8
    """Gradient steps in one iteration: as many for each frame as DQN takes."""
    dueling: bool = True
    """Compute action values as the sum of a state value and advantages (dueling network)."""
    prioritised: bool = True
    """Sample transitions in proportion to their priority instead of uniformly."""
    importance_exponent_end: cfg.Fraction = 0.4
    """Importance-sampling exponent (beta) at the end of training."""
    epsilon_start: cfg.Fraction = 0.4
    """Probability of a random action of the first actor, at the start of training."""
    epsilon_end: cfg.Fraction = 0.4
    """Probability of a random action of the first actor, once exploration_fraction of the training is over."""
    epsilon_ladder: cfg.NonNegative = 7.0
    """Exponent that spreads the probability p over B actors: number i has p ** (1 + ladder * i / (B - 1))."""


class Known(NamedTuple):
    """What an actor knew when it acted: the value of its action, and the largest of all, ``[B]``."""

    taken: Array
    best: Array


def known(q: Array, action: Array) -> Known:
    """Of action values ``[B, A]`` and actions ``[B]``."""
    return Known(jnp.take_along_axis(q, action[:, None], axis=1)[:, 0], jnp.max(q, axis=1))


def initial_priority(items: Outcome) -> Array:
    """The size of Q-learning's error by what the actor knew, ``[N]`` (Algorithm 1, ComputePriorities)."""
    return jnp.abs(items.reward + items.discount * items.next_extras.best - items.extras.taken)


def make_learner(config: Config, env: Env, **parts: Any) -> Learner:
    """Ape-X as a `Learner`; the parts are those of `dqn.make_learner`."""
    return dqn.make_learner(config, env, record=known, **parts)


def make_trainer(config: Config, env: Env, learner: Learner) -> Trainer:
    """One iteration as a `Trainer`; what is collected gets its first priorities by `initial_priority`."""
    return action_values.make_trainer(config, env, learner, initial=initial_priority)


apex = Algorithm(
    "apex",
    Config,
    problems,
    make_learner,
    make_trainer,
    sockets=("td-loss", "optimiser"),
)
