"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from typing import Annotated, Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import ppo_presets
from purerl.algos.algorithm import Algorithm, rows_and_state
from purerl.curricula import on_policy
from purerl.errors import ConfigError
from purerl.formulas import losses, returns
from purerl.formulas.returns import Estimate
from purerl.learners.families import actor_critic
from purerl.learners.families.actor_critic import (
    ActorCriticConfig,
    ActorCriticState,
    AgentParts,
    Batch,
    Objective,
    Steps,
    ValueLoss,
)
from purerl.learners.parts import checks, gradients, settings
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Scores, Updated

WITH_MORE_STEPS = cfg.Needs(
    "more than one gradient step on the same experience: num_epochs, num_minibatches or max_uses above 1, or a lag",
    lambda config: config.num_epochs * config.num_minibatches * config.max_uses > 1 or config.lag != 0,
)
"""The first gradient step measures no divergence, since its ratios are 1."""


WITHOUT_ADAPTATION = cfg.Needs(
    "adapt_learning_rate = 0", lambda config: not config.adapt_learning_rate or config.learning_rate_decay == 0
)


@cfg.config
class PPOConfig(settings.SequenceMinibatches, ActorCriticConfig):
    """Settings of PPO."""

    gae_lambda: cfg.Fraction = 0.95
    """Trace parameter (lambda) of generalised advantage estimation (GAE)."""
    clip_epsilon: cfg.Positive = 0.2
    """Clip range of the probability ratio around 1, and of a value around its old value."""
    target_kl: cfg.Limit = 0
    """Upper bound of a minibatch's approximate KL divergence from the policy that acted. Above it an iteration skips
    that minibatch's gradient step and all later ones. 0: no bound."""
    learning_rate_decay: Annotated[cfg.Fraction, WITHOUT_ADAPTATION] = 1.0
    """Fraction by which the learning rate has decayed, linearly, at the end of training. 0: constant."""
    adapt_learning_rate: Annotated[cfg.Limit, WITH_MORE_STEPS] = 0
    """KL divergence from the policy that acted which the learning rate aims at, in place of its decay: before the
    gradient step of each minibatch it is divided by 1.5 if approximate_kl is above twice the target, and multiplied by
    1.5 if it is below half of it, within 1e-5 and 1e-2. 0: off."""


def problems(config: PPOConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    return actor_critic.problems(config, env) + checks.sequence_problems(config, config.memory != "none")


def with_adaptive_descent(config: PPOConfig, parts: AgentParts) -> AgentParts:
    """Returns ``parts`` with the optimiser whose step size follows ``adapt_learning_rate``, unless that is 0.

    Raises:
        ConfigError: An optimiser of the user's own is among ``parts``, which has a step size of its own.
    """
    if not config.adapt_learning_rate:
        return parts
    given = parts.get("optimiser")
    if given is not None and not isinstance(given, gradients.Named):
        raise ConfigError(
            f"adapt_learning_rate = {config.adapt_learning_rate}: must be 0 with an optimiser that is given, which has "
            "its own step size"
        )
    step = gradients.adaptive_descent(config.learning_rate, config.adapt_learning_rate)
    return {**parts, "optimiser": gradients.given_or_made(given, config, step=step)}


class PPOParts(AgentParts, total=False):
    """Parts of PPO: arguments of `make_learner`."""

    estimate: Estimate | None
    objective: Objective
    value_loss: ValueLoss


def make_learner(
    config: PPOConfig,
    env: Env,
    *,
    estimate: Estimate | None = None,
    objective: Objective = losses.clipped_surrogate,
    value_loss: ValueLoss = losses.clipped_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes PPO's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        estimate: ``estimate(columns) -> (advantage [T], target [T])``, where ``log_ratio`` is 0. None: GAE.
        objective: ``objective(log_ratio, advantage, config)``, elementwise, is maximised.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The other arguments of `actor_critic.make_agent`: ``network``, ``optimiser``, ``scaler`` of rewards.
    """
    agent = actor_critic.make_agent(config, env, **with_adaptive_descent(config, parts))
    estimate = estimate or returns.by_gae(config.gae_lambda)

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        policy, value, batch = agent.unroll(params, batch)  # all flat: [N], sequences one after another
        log_ratio = agent.distribution.log_prob(policy, batch.action) - batch.log_prob
        advantage = losses.standardise(batch.advantage, batch.acting)  # acting: where an action counts
        policy_loss = -losses.mean(objective(log_ratio, advantage, config), batch.acting)
        critic_loss = losses.mean(value_loss(value, batch.value, batch.target, config), batch.present)  # no padding
        entropy = losses.mean(agent.distribution.entropy(policy), batch.acting)
        total = policy_loss + config.value_coef * critic_loss - config.entropy_coef * entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "entropy": entropy,
            "approximate_kl": losses.mean(losses.approximate_kl(log_ratio), batch.acting),
            "clip_fraction": losses.mean(jnp.abs(jnp.expm1(log_ratio)) > config.clip_epsilon, batch.acting),
        }

    def update(state: ActorCriticState, steps: Steps, key: Key) -> Updated:
        _, value, next_value = agent.evaluate(state.params, steps)  # [T, B]
        advantage, target = agent.advantages_and_targets(estimate, steps, steps.log_prob, value, next_value)
        samples = agent.samples(  # [N, ...] or, with a memory, [N, sequence_steps, ...]
            steps, config.sequence_steps, log_prob=steps.log_prob, value=value, advantage=advantage, target=target
        )
        params, opt_state, metrics = gradients.minibatch_epochs(
            loss,
            agent.optimiser,
            state.params,
            state.opt_state,
            samples,
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            stop=(lambda metrics: metrics["approximate_kl"] > config.target_kl) if config.target_kl else None,
            divergence=(lambda metrics: metrics["approximate_kl"]) if config.adapt_learning_rate else None,
        )
        metrics["explained_variance"] = losses.explained_variance(value, target, steps.present)
        return Updated(state._replace(params=params, opt_state=opt_state), metrics, Scores(value, advantage))

    return agent.learner(update)


ppo = Algorithm(
    "ppo",
    PPOConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("value-loss", "policy-drift", "optimiser"),
    presets=ppo_presets.ALL,
    view=rows_and_state,
)
