"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783): all environments step together, one gradient for all.

With a lag it has the staleness of the paper's asynchronous A3C.
"""

from typing import Unpack

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import losses
from purerl.learners.families import policy_gradients
from purerl.learners.families.policy_gradients import ActorCriticParts, PolicyGradientState, ValueLoss, problems
from purerl.learners.parts import estimates, teaching
from purerl.learners.parts.estimates import Estimate, Experience
from purerl.learners.parts.lifetimes import Timed
from purerl.types import Env, Key, Learner, Updated


@cfg.config(num_envs=8, num_steps=16, learning_rate=4e-3, max_grad_norm=5.0, normalize_reward=True)
class A2CConfig(policy_gradients.PolicyGradientConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program.

    W asynchronous workers that take turns are ``lag`` W - 1: the gradient, too, is taken at the parameters that acted.
    """

    gae_lambda: cfg.Fraction = 1.0
    """Trace parameter (lambda) of generalised advantage estimation (GAE). 1: sum all rewards to the end of the
    rollout."""


def make_learner(
    config: A2CConfig,
    env: Env,
    *,
    estimate: Estimate | Timed | None = None,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[ActorCriticParts],
) -> Learner:
    """Makes A2C's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        estimate: Gives advantages and targets; None: GAE.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `policy_gradients.make_parts`.
    """
    made = policy_gradients.make_parts(config, env, value_loss=value_loss, **parts)
    estimate = estimate or estimates.by_gae(config.gae_lambda)

    def learn(state: PolicyGradientState, experience: Experience, key: Key) -> Updated:
        return policy_gradients.descend(config, made, estimate, state, experience, at=policy_gradients.acting(state))

    return policy_gradients.make_learner(config, made, learn, estimate)


a2c = Algorithm(
    "a2c",
    A2CConfig,
    problems,
    make_learner,
    teaching.make_trainer,
    sockets=("lpg", "optimiser"),
    presets={
        "image": {**policy_gradients.IMAGE, "gae_lambda": 0.95},
        "memory": policy_gradients.MEMORY,
        "continuous": {**policy_gradients.CONTINUOUS, "gae_lambda": 0.95},
    },
)
