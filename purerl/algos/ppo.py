"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from typing import Any

import jax.numpy as jnp

from purerl import config as cfg
from purerl import loops, losses, policy_gradients, surrogates
from purerl.policy_gradients import Experience, State
from purerl.surrogates import problems
from purerl.types import Env, Key, Learner, Metrics, Trainer

__all__ = ["Config", "make_learner", "make_train", "make_trainer", "problems"]


@cfg.config
class Config(surrogates.Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    gae_lambda: cfg.Fraction = 0.95
    """Trace parameter of the advantage estimate."""


def make_learner(
    config: Config,
    env: Env,
    *,
    objective=losses.clipped_surrogate,
    value_loss=losses.clipped_value_loss,
    **parts: Any,
) -> Learner:
    """PPO as a `Learner`.

    ``objective(log_ratio, advantage, config)`` is maximised, ``value_loss(value, old_value, target, config)``
    minimised, and both act elementwise; ``parts`` are those of `policy_gradients.make_parts`: ``network``, a
    `networks.ActorCritic`, ``optimiser``, any optax transformation, and ``scaler``, of rewards.
    """
    made = policy_gradients.make_parts(config, env, value_loss=value_loss, **parts)
    estimate = policy_gradients.by_gae(config.gae_lambda)

    def learn(state: State, seen: Experience, key: Key) -> tuple[State, Metrics]:
        _, value, next_value = policy_gradients.evaluate(made.network, state.params, seen)
        advantage, target = policy_gradients.estimates(
            estimate, seen.log_prob, jnp.zeros_like(value), seen, value, next_value
        )
        batch = {"log_prob": seen.log_prob, "value": value, "advantage": advantage, "target": target}
        return surrogates.descend(config, made, objective, state, seen, key, **batch)

    return policy_gradients.make_learner(config, made, learn)


def make_trainer(config: Config, env: Env, **parts: Any) -> Trainer:
    """One iteration of PPO as a `Trainer`; ``parts`` are those of `make_learner`."""
    return policy_gradients.make_trainer(config, env, make_learner(config, env, **parts))


def make_train(config: Config, env: Env, **parts: Any):
    """The whole training, ``train(key) -> Result``; ``parts`` are those of `make_learner`."""
    return loops.train(make_trainer(config, env, **parts), config.num_iterations)
