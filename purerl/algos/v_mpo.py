"""V-MPO (Song et al. 2019, arXiv 1909.12238): on-policy maximum a posteriori policy optimisation."""

from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import shards, trees
from purerl.algos.algorithm import Algorithm, rows_and_state
from purerl.algos.ppo_presets import USUAL
from purerl.curricula import on_policy
from purerl.formulas import divergences, losses, returns
from purerl.formulas.returns import Estimate
from purerl.learners.families import actor_critic
from purerl.learners.families.actor_critic import (
    ActorCriticConfig,
    AgentParts,
    Batch,
    Steps,
    ValueLoss,
)
from purerl.learners.parts import checks, duals, gradients, settings
from purerl.learners.parts.duals import Duals, DualState
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Scores, Updated


@cfg.config(entropy_coef=0.0)
class VMPOConfig(duals.DualSettings, settings.SequenceMinibatches, ActorCriticConfig):
    """Settings of V-MPO."""

    gae_lambda: cfg.Fraction = 0.95
    """Trace parameter (lambda) of generalised advantage estimation (GAE). 1: sum all rewards to the end of the
    rollout, as in the paper."""


def problems(config: VMPOConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete, MultiDiscrete or Box.
    """
    problems = actor_critic.problems(config, env) or checks.space_problems(env, (Discrete, MultiDiscrete, Box))
    return problems + checks.sequence_problems(config, config.memory != "none")


class VMPOState(NamedTuple):
    """The learner's state: that of every actor-critic, and the dual variables."""

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: PyTree
    duals: DualState


def top_half(advantage: Array, counts: Array | tuple[()]) -> tuple[Array, Array]:
    """Chooses the half of a batch that has the larger advantages (section 4.1); equal ones are chosen together.

    Args:
        advantage: Advantages ``[N]``.
        counts: Which of them may be chosen, bool ``[N]``; ``()``: all.

    Returns:
        The advantages ``[A]`` of all `shards` of the agent, and logarithms of the uniform distribution over the chosen
        ones ``[A]``; over all if none may be chosen.
    """
    counted = jnp.ones(advantage.shape, bool) if isinstance(counts, tuple) else counts
    advantage, counted = shards.gathered((advantage, counted))
    size = jnp.sum(counted)
    ordered = jnp.sort(jnp.where(counted, advantage, -jnp.inf), descending=True)
    least = ordered[jnp.maximum((size + 1) // 2 - 1, 0)]
    chosen = jnp.where(size > 0, counted & (advantage >= least), True)
    return jnp.where(counted, advantage, 0.0), jnp.log(chosen / jnp.sum(chosen))


def make_learner(
    config: VMPOConfig,
    env: Env,
    *,
    estimate: Estimate | None = None,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes V-MPO's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        estimate: ``estimate(columns) -> (advantage [T], target [T])``, where ``log_ratio`` is 0. None: GAE.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `actor_critic.make_agent`.
    """
    agent = actor_critic.make_agent(config, env, **parts)
    estimate = estimate or returns.by_gae(config.gae_lambda)
    bounded = divergences.for_space(env.action_space)
    learner_of_duals = duals.make(config, bounded.names)

    def loss(params: PyTree, given: tuple[Batch, Duals]) -> tuple[Array, tuple[Metrics, tuple[Array, Array, Array]]]:
        batch, dual = given
        policy, value, batch = agent.unroll(params, batch)  # all flat: [N], sequences one after another
        log_prob = agent.distribution.log_prob(policy, batch.action)
        advantage, log_prior = top_half(batch.advantage, batch.acting)  # acting: where an action counts
        weight = shards.part(divergences.e_step_weights(advantage, log_prior, dual.temperature)) * shards.count()
        policy_loss = -jnp.sum(jnp.where(weight > 0, weight * log_prob, 0.0))
        divergence = jax.vmap(losses.mean, (-1, None))(bounded.between(batch.policy, policy), batch.acting)  # [C]
        critic_loss = losses.mean(value_loss(value, batch.value, batch.target, config), batch.present)
        entropy = losses.mean(agent.distribution.entropy(policy), batch.acting)
        total = policy_loss + config.value_coef * critic_loss - config.entropy_coef * entropy
        total += jnp.sum(dual.multipliers * divergence)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "entropy": entropy,
            "approximate_kl": losses.mean(losses.approximate_kl(log_prob - batch.log_prob), batch.acting),
        }
        return total, (metrics, (advantage, log_prior, divergence))

    def step(state: VMPOState, batch: Batch) -> tuple[VMPOState, Metrics]:
        params, opt_state, (metrics, (advantage, log_prior, divergence)), of_step = gradients.gradient_step(
            loss, agent.optimiser, state.params, state.opt_state, (batch, state.duals.values)
        )
        dual, of_duals = learner_of_duals.step(state.duals, advantage, log_prior, 1.0, divergence)
        return state._replace(params=params, opt_state=opt_state, duals=dual), {**metrics, **of_step, **of_duals}

    def update(state: VMPOState, steps: Steps, key: Key) -> Updated:
        policy, value, next_value = agent.evaluate(state.params, steps)  # [T, B]: the target network's policy
        advantage, target = agent.advantages_and_targets(estimate, steps, steps.log_prob, value, next_value)
        estimates = {"log_prob": steps.log_prob, "value": value, "advantage": advantage, "target": target}
        samples = agent.samples(steps, config.sequence_steps, **estimates, policy=policy)  # [N, ...] or [N, L, ...]
        indices = gradients.minibatch_indices(key, trees.length(samples), config.num_epochs, config.num_minibatches)
        state, metrics = trees.scan_means(lambda state, index: step(state, trees.take(samples, index)), state, indices)
        metrics["explained_variance"] = losses.explained_variance(value, target, steps.present)
        return Updated(state, metrics, Scores(value, advantage))

    return agent.learner(update, lambda state: VMPOState(*state, duals=learner_of_duals.init()))


CONTINUOUS = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_minibatches": 8,
    "learning_rate": 1e-3,
    "normalize_obs": True,
    "normalize_reward": True,
}
"""Chosen on Pendulum."""
BRAX = {
    "total_steps": 50_000_000,
    "num_envs": 1024,
    "num_steps": 64,
    "num_epochs": 8,
    "num_minibatches": 1,
    "learning_rate": 3e-4,
    "dual_learning_rate": 3e-4,
    "learning_rate_decay": 0.0,
    "e_step_kl": 0.05,
    "m_step_kl": 0.05,
    "m_step_kl_deviation": 5e-4,
    "initial_temperature": 10.0,
    "initial_multiplier": 10.0,
    "normalize_obs": True,
    "normalize_reward": True,
    "hidden_sizes": (256, 256),
    "activation": "silu",
}
"""Stoix' settings of V-MPO for continuous actions (github.com/EdanToledo/Stoix at 43f2efb,
stoix/configs/system/ff_vmpo_continuous.yaml): rollouts of 64 steps, 8 steps on each as a whole, its bounds and step
sizes. Differences: its multiplier of the standard deviations begins at 500, it bounds the divergence of each dimension
of an action by itself, its target network is older, and rewards are as they are. The number of environments, the
networks and the length are not from there."""


v_mpo = Algorithm(
    "v-mpo",
    VMPOConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("optimiser",),
    presets={"memory": USUAL["memory"], "continuous": CONTINUOUS, "brax": BRAX},
    view=rows_and_state,
)
