"""Discovered policy optimisation (Lu et al. 2022, arXiv 2210.05639): PPO with another objective."""

from typing import Any

from purerl import config as cfg
from purerl import loops, losses, policy_gradients
from purerl.algos import ppo
from purerl.surrogates import problems
from purerl.types import Env, Learner, Trainer

__all__ = ["Config", "make_learner", "make_train", "make_trainer", "problems"]


@cfg.config
class Config(ppo.Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    drift_a: cfg.Positive = 2.0
    """Gain beyond which a good action's ratio is held back."""
    drift_b: cfg.Positive = 0.6
    """The same for a bad action's log-ratio."""


def make_learner(config: Config, env: Env, **parts: Any) -> Learner:
    """DPO as a `Learner`; ``parts`` are those of `ppo.make_learner`, but for the objective."""
    return ppo.make_learner(config, env, objective=losses.discovered_policy, **parts)


def make_trainer(config: Config, env: Env, **parts: Any) -> Trainer:
    """One iteration of DPO as a `Trainer`; ``parts`` are those of `make_learner`."""
    return policy_gradients.make_trainer(config, env, make_learner(config, env, **parts))


def make_train(config: Config, env: Env, **parts: Any):
    """The whole training, ``train(key) -> Result``; ``parts`` are those of `make_learner`."""
    return loops.train(make_trainer(config, env, **parts), config.num_iterations)
