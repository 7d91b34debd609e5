"""Asynchronous PPO: PPO's epochs on experience of older parameters, with V-trace and a target network.

It follows Sample Factory (Petrenko et al. 2020, arXiv 2006.11751) and IMPACT (Luo et al. 2020, arXiv 1912.00167).
"""

from typing import NamedTuple, Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import impala
from purerl.algos.algorithm import Algorithm, rows_and_state
from purerl.algos.ppo import problems
from purerl.algos.ppo_presets import USUAL
from purerl.curricula import on_policy
from purerl.formulas import losses, returns
from purerl.formulas.returns import Columns
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
from purerl.learners.parts import settings, target_networks
from purerl.learners.parts.gradients import minibatch_epochs
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Scores, Updated


@cfg.config(normalize_reward=True)
class APPOConfig(impala.VtraceSettings, settings.SequenceMinibatches, ActorCriticConfig):
    """Settings of APPO."""

    target_period: cfg.Count = 1
    """Iterations between two updates of the target network."""
    ratio_bound: cfg.Positive = 2.0
    """Upper clip of the ratio of the target policy's probability of an action to that of the policy that acted."""
    clip_epsilon: cfg.Positive = 0.2
    """Clip range of the probability ratio around 1, and of a value around its old value."""
    target_kl: cfg.Limit = 0
    """Upper bound of a minibatch's approximate KL divergence from the policy that acted. Above it an iteration skips
    that minibatch's gradient step and all later ones. 0: no bound."""


class APPOState(NamedTuple):
    """The learner's state: that of every actor-critic, and the target network with the iterations since its refresh."""

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: PyTree
    target_params: PyTree
    target_age: Array


def make_learner(
    config: APPOConfig,
    env: Env,
    *,
    objective: Objective = losses.clipped_surrogate,
    value_loss: ValueLoss = losses.clipped_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes APPO's `Learner`.

    V-trace computes the estimates for the target policy. The objective's ratio is IMPACT's (section 3.1),
    ``min(ratio_bound, pi_target / pi_acted) * pi / pi_target``, which is the ratio of ``pi`` to the larger of
    ``pi_target`` and ``pi_acted / ratio_bound``.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        objective: ``objective(log_ratio, advantage, config)``, elementwise, is maximised.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `actor_critic.make_agent`.
    """
    agent = actor_critic.make_agent(config, env, **parts)

    def estimate(columns: Columns) -> tuple[Array, Array]:  # [T]
        _, log_ratio, reward, value, next_value, discount, last = columns
        rho, c = impala.vtrace_weights(log_ratio, config)
        return returns.weighted_returns(rho, c, reward, value, next_value, discount, last)

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

    def update(state: APPOState, steps: Steps, key: Key) -> Updated:
        policy, _, _ = agent.evaluate(state.target_params, steps)
        _, value, next_value = agent.evaluate(state.params, steps)
        log_prob = agent.distribution.log_prob(policy, steps.action)
        advantage, target = agent.advantages_and_targets(estimate, steps, log_prob, value, next_value)
        reference = jnp.maximum(log_prob, steps.log_prob - jnp.log(config.ratio_bound))
        samples = agent.samples(  # [N, ...] or, with a memory, [N, sequence_steps, ...]
            steps, config.sequence_steps, log_prob=reference, value=value, advantage=advantage, target=target
        )
        params, opt_state, metrics = minibatch_epochs(
            loss,
            agent.optimiser,
            state.params,
            state.opt_state,
            samples,
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            stop=(lambda metrics: metrics["approximate_kl"] > config.target_kl) if config.target_kl else None,
        )
        metrics["explained_variance"] = losses.explained_variance(value, target, steps.present)
        target_params, age = target_networks.periodic(
            params, state.target_params, state.target_age, config.target_period
        )
        learned = state._replace(params=params, opt_state=opt_state, target_params=target_params, target_age=age)
        return Updated(learned, metrics, Scores(value, advantage))

    def begin(state: ActorCriticState) -> APPOState:
        return APPOState(*state, target_params=state.params, target_age=jnp.zeros((), jnp.int32))

    return agent.learner(update, begin)


SAMPLE_FACTORY = {
    "total_steps": 10_000_000,
    "num_envs": 32,
    "num_steps": 32,
    "num_epochs": 1,
    "num_minibatches": 1,
    "sequence_length": 32,
    "learning_rate": 1e-4,
    "learning_rate_decay": 0.0,
    "max_grad_norm": 4.0,
    "clip_epsilon": 0.1,
    "ratio_bound": 20.0,
    "entropy_coef": 0.003,
    "normalize_reward": False,
    "memory": "gru",
    "memory_size": 128,
    "hidden_sizes": (128, 128),
    "activation": "elu",
}
"""Settings of Sample Factory (Petrenko et al. 2020, arXiv 2006.11751; github.com/alex-petrenko/sample-factory at
01c7bba, sample_factory/cfg/cfg.py): batches of 1024 steps in rollouts of 32, each used once, V-trace with both
bounds at 1, a GRU. Scaled down: 128 units instead of 512, and 1e7 steps. Differences: Sample Factory clips a
ratio to [1 / 1.1, 1.1] and a value to within 1 of the old one, and its Adam has an epsilon of 1e-6. Its later
release also normalises observations and returns by default."""


appo = Algorithm(
    "appo",
    APPOConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("value-loss", "policy-drift", "optimiser"),
    presets={**USUAL, "sample-factory": SAMPLE_FACTORY},
    view=rows_and_state,
)
