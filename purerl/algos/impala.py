"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561): actors whose parameters are old, and V-trace to make up for it."""

from typing import Any

import jax.numpy as jnp

from purerl import config as cfg
from purerl import loops, policy_gradients
from purerl.policy_gradients import Experience, State, problems
from purerl.types import Array, Env, Key, Learner, Metrics, Trainer

__all__ = ["Config", "make_learner", "make_train", "make_trainer", "problems"]


@cfg.config
class Config(policy_gradients.Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    num_envs: cfg.Count = 8
    """Environments that step side by side."""
    num_steps: cfg.Count = 20
    """Steps in each environment between two updates."""
    learning_rate: cfg.Positive = 4e-3
    """Adam's step size at the start."""
    max_grad_norm: cfg.Positive = 5.0
    """Global norm that gradients are clipped to."""
    corrected: bool = True
    """Weigh experience by V-trace. Without it all counts as fresh, as in GA3C (Babaeizadeh et al. 2017)."""
    trace_lambda: cfg.Fraction = 1.0
    """Trace parameter of the targets."""
    rho_bar: cfg.Positive = 1.0
    """Largest weight of a step's own error; the critic learns the value of the policy that this bound leaves."""
    c_bar: cfg.Positive = 1.0
    """Largest weight with which a step passes later errors on."""


def make_learner(config: Config, env: Env, **parts: Any) -> Learner:
    """IMPALA as a `Learner`. ``parts`` are those of `policy_gradients.make_parts`."""
    made = policy_gradients.make_parts(config, env, **parts)

    vtrace = policy_gradients.by_vtrace(config.trace_lambda, config.rho_bar, config.c_bar)

    def estimate(log_ratio: Array, *columns: Array) -> tuple[Array, Array]:
        return vtrace(log_ratio if config.corrected else jnp.zeros_like(log_ratio), *columns)

    def learn(state: State, seen: Experience, key: Key) -> tuple[State, Metrics]:
        return policy_gradients.descend(config, made, estimate, state, seen)

    return policy_gradients.make_learner(config, made, learn)


def make_trainer(config: Config, env: Env, **parts: Any) -> Trainer:
    """One iteration of IMPALA as a `Trainer`; ``parts`` are those of `make_learner`."""
    return policy_gradients.make_trainer(config, env, make_learner(config, env, **parts))


def make_train(config: Config, env: Env, **parts: Any):
    """The whole training, ``train(key) -> Result``; ``parts`` are those of `make_learner`."""
    return loops.train(make_trainer(config, env, **parts), config.num_iterations)
