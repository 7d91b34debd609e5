"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from typing import Any, Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.curricula import on_policy
from purerl.formulas import losses
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
from purerl.learners.parts import checks, estimates, settings
from purerl.learners.parts.estimates import Estimate
from purerl.learners.parts.gradients import minibatch_epochs
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Scores, Updated


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


def problems(config: PPOConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    return actor_critic.problems(config, env) + checks.sequence_problems(config, config.memory != "none")


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
        estimate: Gives advantages and targets; the ``log_ratio`` that it reads is 0. None: GAE.
        objective: ``objective(log_ratio, advantage, config)``, elementwise, is maximised.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `actor_critic.make_agent`: ``network``, a `networks.ActorCritic`;
            ``optimiser``, any optax transformation; ``scaler``, of rewards.
    """
    agent = actor_critic.make_agent(config, env, **parts)
    estimate = estimate or estimates.by_gae(config.gae_lambda)

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        policy, value, batch = agent.unroll(params, batch)
        log_ratio = agent.distribution.log_prob(policy, batch.action) - batch.log_prob
        advantage = losses.standardise(batch.advantage, batch.acting)
        policy_loss = -losses.mean(objective(log_ratio, advantage, config), batch.acting)
        critic_loss = losses.mean(value_loss(value, batch.value, batch.target, config), batch.present)
        entropy = losses.mean(agent.distribution.entropy(policy), batch.acting)
        total = policy_loss + config.value_coef * critic_loss - config.entropy_coef * entropy
        clipped = jnp.abs(jnp.expm1(log_ratio)) > config.clip_epsilon
        return total, {
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "entropy": entropy,
            "approximate_kl": losses.mean(losses.approximate_kl(log_ratio), batch.acting),
            "clip_fraction": losses.mean(clipped, batch.acting),
        }

    def update(state: ActorCriticState, steps: Steps, key: Key) -> Updated:
        _, value, next_value = agent.evaluate(state.params, steps)
        advantage, target = agent.estimate(estimate, steps, steps.log_prob, value, next_value)
        columns = {"log_prob": steps.log_prob, "value": value, "advantage": advantage, "target": target}
        params, opt_state, metrics = minibatch_epochs(
            loss,
            agent.optimiser,
            state.params,
            state.opt_state,
            agent.batch(steps, config.sequence_steps, **columns),
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            stop=(lambda metrics: metrics["approximate_kl"] > config.target_kl) if config.target_kl else None,
        )
        metrics["explained_variance"] = losses.explained_variance(value, target, steps.present)
        return Updated(state._replace(params=params, opt_state=opt_state), metrics, Scores(value, advantage))

    return agent.learner(update)


IMAGE = {
    "total_steps": 10_000_000,
    "num_envs": 64,
    "num_minibatches": 8,
    "learning_rate": 1e-3,
    "entropy_coef": 0.05,
    "normalize_reward": False,
    "activation": "relu",
    "hidden_sizes": (128,),
}
MEMORY = {"num_envs": 16, "learning_rate": 1e-3, "memory": "gru", "sequence_length": 32}
CONTINUOUS = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_epochs": 10,
    "num_minibatches": 32,
    "learning_rate": 1e-3,
    "entropy_coef": 0.0,
    "normalize_obs": True,
    "normalize_reward": True,
}
PRESETS: dict[str, dict[str, Any]] = {"image": IMAGE, "memory": MEMORY, "continuous": CONTINUOUS}
"""Presets chosen by PPO on Breakout of MinAtar, MemoryChain, and Pendulum. On Breakout seeds differ more than
settings do."""

MINATAR = {
    "total_steps": 10_000_000,
    "learning_rate": 5e-3,
    "num_envs": 64,
    "num_steps": 128,
    "num_minibatches": 8,
    "activation": "relu",
    "hidden_sizes": (128,),
}
BRAX = {
    "total_steps": 50_000_000,
    "num_envs": 2048,
    "num_steps": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_decay": 0.0,
    "entropy_coef": 0.0,
    "normalize_obs": True,
    "normalize_reward": True,
    "hidden_sizes": (256, 256),
}
"""``minatar`` and ``brax`` are PureJaxRL's settings, with a convolution on MinAtar: comparisons of speed use them."""
LOCOMOTION = {
    "total_steps": 50_000_000,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_decay": 0.0,
    "clip_epsilon": 0.3,
    "normalize_obs": True,
    "hidden_sizes": (256, 256),
    "activation": "silu",
}
ANT = {**LOCOMOTION, "num_envs": 4096, "num_steps": 80, "num_epochs": 4, "gamma": 0.97, "entropy_coef": 1e-2}
HUMANOID = {**LOCOMOTION, "num_envs": 2048, "num_steps": 160, "num_epochs": 8, "gamma": 0.97, "entropy_coef": 1e-3}
HALFCHEETAH = {**HUMANOID, "gamma": 0.95}
"""Settings of brax' own training of these tasks (github.com/google/brax, notebooks/training.ipynb), except for the
widths of the networks, and with advantages over all steps of an iteration instead of 5 to 20. Brax also
multiplies the rewards: by 10 for ant and by 0.1 for humanoid (``reward_scale`` of the environment)."""
OPENAI_FIVE = {
    "num_envs": 256,
    "num_steps": 64,
    "num_epochs": 1,
    "num_minibatches": 16,
    "sequence_length": 16,
    "memory": "lstm",
    "memory_size": 128,
    "hidden_sizes": (128, 128),
    "lag": 1.0,
    "max_lag": 1,
    "gamma": 0.998,
    "value_coef": 1.0,
    "learning_rate": 2e-3,
    "total_steps": 5_000_000,
}
"""The recipe of Berner et al. 2019 (arXiv 1912.06680) at a size for small machines: recurrent PPO, large batches in
sequences of 16 steps, each used once, by parameters one version old. Its team spirit is `normalize.team_spirit`."""

MFOS = {
    "num_envs": 256,
    "num_steps": 100,
    "num_minibatches": 1,
    "gae_lambda": 1.0,
    "learning_rate": 2e-3,
    "learning_rate_decay": 0.0,
    "normalize_reward": True,
    "hidden_sizes": (256,),
    "total_steps": 12_800_000,
}
"""Settings for the matrix games of M-FOS (Lu et al. 2022, arXiv 2205.01447), with 256 games side by side in place of
4096, and 500 episodes of them: whole episodes of `MatrixShaping-v0`, whose advantages are returns less the
critic's values."""

MAZE = {
    "num_envs": 32,
    "num_steps": 256,
    "num_epochs": 5,
    "num_minibatches": 1,
    "sequence_length": 0,
    "learning_rate": 1e-4,
    "gamma": 0.995,
    "gae_lambda": 0.98,
    "entropy_coef": 1e-3,
    "activation": "relu",
    "hidden_sizes": (32,),
    "memory": "lstm",
    "memory_size": 256,
    "total_steps": 245_760_000,
}
"""JaxUED's settings for `Maze-v0` (github.com/DramaCow/jaxued, examples/maze_plr.py) and its length, 30,000
iterations, with gradients through all steps of each. JaxUED's network has one layer more, of 5 units for the
direction."""


ppo = Algorithm(
    "ppo",
    PPOConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("value-loss", "policy-drift", "optimiser"),
    presets={
        **PRESETS,
        "minatar": MINATAR,
        "brax": BRAX,
        "ant": ANT,
        "humanoid": HUMANOID,
        "halfcheetah": HALFCHEETAH,
        "openai-five": OPENAI_FIVE,
        "mfos": MFOS,
        "maze": MAZE,
    },
)
