"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783): all environments step together, one gradient for all.

With a lag it has the staleness of the paper's asynchronous A3C.
"""

from typing import Unpack

import jax

from purerl import config as cfg
from purerl import trees
from purerl.algos.algorithm import Algorithm, rows_and_state
from purerl.curricula import on_policy
from purerl.formulas import losses, returns
from purerl.formulas.returns import Estimate
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


@cfg.config(num_envs=8, num_steps=16, learning_rate=4e-3, max_grad_norm=5.0, normalize_reward=True)
class A2CConfig(ActorCriticConfig):
    """Settings of A2C.

    W asynchronous workers that take turns are ``lag`` W - 1: the gradient, too, is taken at the parameters that acted.
    """

    gae_lambda: cfg.Fraction = 1.0
    """Trace parameter (lambda) of generalised advantage estimation (GAE). 1: sum all rewards to the end of the
    rollout."""


def make_learner(
    config: A2CConfig,
    env: Env,
    *,
    estimate: Estimate | None = None,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes A2C's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        estimate: Gives advantages and targets; None: GAE.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `actor_critic.make_agent`.
    """
    agent = actor_critic.make_agent(config, env, **parts)
    estimate = estimate or returns.by_gae(config.gae_lambda)

    def loss(params: PyTree, steps: Steps) -> tuple[Array, tuple[Metrics, Scores]]:
        policy, value, next_value = agent.evaluate(params, steps)  # [T, B]
        samples = policy, value, steps.action, steps.log_prob, steps.acting, steps.present
        policy, value, action, acted, acting, present = trees.merge(samples, 2)  # [T * B]
        log_prob = agent.distribution.log_prob(policy, action)
        columns = (*trees.split((log_prob, value), steps.last.shape), next_value)  # [T, B]
        fixed_log_prob, fixed_value, next_value = jax.lax.stop_gradient(columns)
        advantage, target = agent.advantages_and_targets(estimate, steps, fixed_log_prob, fixed_value, next_value)
        scores = Scores(first_of(fixed_value, advantage), advantage)
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
            "explained_variance": losses.explained_variance(
                first_of(value, advantage), first_of(target, advantage), present
            ),
        }
        return total, (metrics, scores)

    def update(state: ActorCriticState, steps: Steps, key: Key) -> Updated:
        params, opt_state, (metrics, scores), more = gradients.gradient_step(
            loss, agent.optimiser, state.params, state.opt_state, steps, at=steps.acted_by
        )
        return Updated(state._replace(params=params, opt_state=opt_state), {**metrics, **more}, scores)

    return agent.learner(update)


def first_of(value: Array, advantage: Array) -> Array:
    """Returns values, or the first of predictions, which have one axis more than advantages."""
    return value[..., 0] if value.ndim > advantage.ndim else value


IMAGE = {
    "total_steps": 10_000_000,
    "num_envs": 16,
    "num_steps": 16,
    "learning_rate": 2e-3,
    "entropy_coef": 0.05,
    "normalize_reward": False,
    "activation": "relu",
    "hidden_sizes": (128,),
}
MEMORY = {"num_envs": 16, "num_steps": 32, "memory": "gru"}
CONTINUOUS = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_steps": 16,
    "learning_rate": 1e-3,
    "entropy_coef": 0.0,
    "normalize_obs": True,
}
"""Presets of algorithms that take one step on what they collect. They were tuned on Breakout of MinAtar, where with
a smaller entropy bonus policies settle on few bricks, on MemoryChain, and on Pendulum. Each lacks its own trace
parameter."""


a2c = Algorithm(
    "a2c",
    A2CConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("lpg", "optimiser"),
    presets={
        "image": {**IMAGE, "gae_lambda": 0.95},
        "memory": MEMORY,
        "continuous": {**CONTINUOUS, "gae_lambda": 0.95},
    },
    view=rows_and_state,
)
