"""REINFORCE with a learned baseline (Williams 1992, section 5; Sutton & Barto 2018, section 13.4)."""

from typing import Unpack

import jax

from purerl import config as cfg
from purerl import trees
from purerl.algos.algorithm import Algorithm, rows_and_state
from purerl.curricula import on_policy
from purerl.formulas import losses, returns
from purerl.formulas.returns import Columns
from purerl.learners.families import actor_critic
from purerl.learners.families.actor_critic import (
    ActorCriticConfig,
    ActorCriticState,
    AgentParts,
    Steps,
    ValueLoss,
    problems,
)
from purerl.learners.parts import gradients
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Scores, Updated


@cfg.config(num_envs=16, num_steps=128, learning_rate=5e-3, normalize_reward=True)
class ReinforceConfig(ActorCriticConfig):
    """Settings of REINFORCE."""


def make_learner(
    config: ReinforceConfig,
    env: Env,
    *,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes REINFORCE's `Learner`. The parts are arguments of `actor_critic.make_agent`.

    A return is the sum of all discounted rewards until the episode terminates. Where a time limit or the end of the
    trajectory cuts it, the baseline stands for the rest.
    """
    agent = actor_critic.make_agent(config, env, **parts)

    def estimate(columns: Columns) -> tuple[Array, Array]:
        total = returns.lambda_returns(columns.reward, columns.next_value, columns.discount, columns.last, 1.0)
        return total - columns.value, total

    def loss(params: PyTree, steps: Steps) -> tuple[Array, tuple[Metrics, Scores]]:
        policy, value, next_value = agent.evaluate(params, steps)  # [T, B]
        samples = policy, value, steps.action, steps.log_prob, steps.acting, steps.present
        policy, value, action, acted, acting, present = trees.merge(samples, 2)  # [T * B]
        log_prob = agent.distribution.log_prob(policy, action)
        columns = (*trees.split((log_prob, value), steps.last.shape), next_value)  # [T, B]
        fixed_log_prob, fixed_value, next_value = jax.lax.stop_gradient(columns)
        advantage, target = agent.advantages_and_targets(estimate, steps, fixed_log_prob, fixed_value, next_value)
        scores = Scores(fixed_value, advantage)
        advantage, target = trees.merge((advantage, target), 2)
        policy_loss = -losses.mean(advantage * log_prob, acting)
        critic_loss = losses.mean(value_loss(value, jax.lax.stop_gradient(value), target, config), present)
        entropy = losses.mean(agent.distribution.entropy(policy), acting)
        total = policy_loss + config.value_coef * critic_loss - config.entropy_coef * entropy
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "entropy": entropy,
            "approximate_kl": losses.mean(losses.approximate_kl(log_prob - acted), acting),
            "explained_variance": losses.explained_variance(value, target, present),
        }
        return total, (metrics, scores)

    def update(state: ActorCriticState, steps: Steps, key: Key) -> Updated:
        params, opt_state, (metrics, scores), more = gradients.gradient_step(
            loss, agent.optimiser, state.params, state.opt_state, steps
        )
        return Updated(state._replace(params=params, opt_state=opt_state), {**metrics, **more}, scores)

    return agent.learner(update)


reinforce = Algorithm(
    "reinforce",
    ReinforceConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("optimiser",),
    view=rows_and_state,
)
