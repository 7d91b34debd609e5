"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561): actors with old parameters, and V-trace to correct for them."""

from collections.abc import Callable
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import trees
from purerl.algos import a2c
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


@cfg.config
class VtraceSettings:
    """Settings of V-trace."""

    trace_lambda: cfg.Fraction = 1.0
    """Trace parameter (lambda) of V-trace's targets."""
    rho_bar: cfg.Positive = 1.0
    """V-trace's rho-bar: upper clip of the importance weight of a step's own TD error."""
    c_bar: cfg.Positive = 1.0
    """V-trace's c-bar: upper clip of the trace weight, which propagates later TD errors back."""


def vtrace_weights(log_ratio: Array, config: VtraceSettings) -> tuple[Array, Array]:
    """Computes V-trace's weights (`returns.vtrace_weights`).

    Args:
        log_ratio: Log-probability under the policy that learns less that under the policy that acted.
        config: Settings.
    """
    return returns.vtrace_weights(log_ratio, config.trace_lambda, config.rho_bar, config.c_bar)


@cfg.config(num_envs=8, num_steps=20, learning_rate=4e-3, max_grad_norm=5.0, normalize_reward=True)
class ImpalaConfig(VtraceSettings, ActorCriticConfig):
    """Settings of IMPALA."""

    corrected: bool = True
    """Correct for off-policy experience by V-trace. If False, experience is treated as on-policy, as in GA3C
    (Babaeizadeh et al. 2017)."""


def make_learner(
    config: ImpalaConfig,
    env: Env,
    *,
    weights: Callable[[Array, Any], tuple[Array, Array]] = vtrace_weights,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes IMPALA's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        weights: ``weights(log_ratio, config) -> (rho, c)``, elementwise.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `actor_critic.make_agent`.
    """
    agent = actor_critic.make_agent(config, env, **parts)

    def estimate(columns: Columns) -> tuple[Array, Array]:  # [T]
        _, log_ratio, reward, value, next_value, discount, last = columns
        rho, c = weights(log_ratio if config.corrected else jnp.zeros_like(log_ratio), config)
        return returns.weighted_returns(rho, c, reward, value, next_value, discount, last)

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


SEED_RL = {
    "total_steps": 10_000_000,
    "num_envs": 32,
    "num_steps": 100,
    "learning_rate": 4.8e-4,
    "max_grad_norm": 1e6,
    "entropy_coef": 2.5e-4,
    "normalize_reward": False,
    "memory": "lstm",
    "memory_size": 256,
    "hidden_sizes": (256, 256),
    "activation": "relu",
}
"""Settings of SEED RL for V-trace on DeepMind Lab (Espeholt et al. 2020, arXiv 1910.06591;
github.com/google-research/seed_rl at 0e1e0ac, agents/vtrace/learner.py and dmlab/vtrace_main.py): batches of 32
unrolls of 100 steps, means as losses, gradients that are not clipped, a step size that falls to 0. Scaled down:
1e7 steps instead of 2.5e8. Differences: its Adam has no momentum and an epsilon of 3.1e-7. The torso depends on
the task; the original has IMPALA's residual network."""


impala = Algorithm(
    "impala",
    ImpalaConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("vtrace-weight", "optimiser"),
    presets={
        "image": {**a2c.IMAGE, "trace_lambda": 0.95},
        "memory": a2c.MEMORY,
        "continuous": {**a2c.CONTINUOUS, "trace_lambda": 0.95},
        "seed-rl": SEED_RL,
    },
    view=rows_and_state,
)
