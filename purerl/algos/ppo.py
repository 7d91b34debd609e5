"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from typing import Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import losses
from purerl.learners.families import policy_gradients, surrogates
from purerl.learners.families.policy_gradients import ActorCriticParts, PolicyGradientState, ValueLoss
from purerl.learners.families.surrogates import Objective, problems
from purerl.learners.parts import estimates, teaching
from purerl.learners.parts.estimates import Estimate, Experience
from purerl.learners.parts.lifetimes import Timed
from purerl.types import Env, Key, Learner, Updated

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


@cfg.config
class PPOConfig(surrogates.SurrogateConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    gae_lambda: cfg.Fraction = 0.95
    """Trace parameter (lambda) of generalised advantage estimation (GAE)."""


class PPOParts(ActorCriticParts, total=False):
    """Parts of PPO: arguments of `make_learner`."""

    estimate: Estimate | None
    objective: Objective | Timed
    value_loss: ValueLoss


def make_learner(
    config: PPOConfig,
    env: Env,
    *,
    estimate: Estimate | None = None,
    objective: Objective | Timed = losses.clipped_surrogate,
    value_loss: ValueLoss = losses.clipped_value_loss,
    **parts: Unpack[ActorCriticParts],
) -> Learner:
    """Makes PPO's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        estimate: Gives advantages and targets; the ``log_ratio`` that it reads is 0. None: GAE.
        objective: ``objective(log_ratio, advantage, config)``, elementwise, is maximised. It may also be a
            `lifetimes.Timed`.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `policy_gradients.make_parts`: ``network``, a `networks.ActorCritic`;
            ``optimiser``, any optax transformation; ``scaler``, of rewards.
    """
    made = policy_gradients.make_parts(config, env, value_loss=value_loss, **parts)
    estimate = estimate or estimates.by_gae(config.gae_lambda)

    def learn(state: PolicyGradientState, experience: Experience, key: Key) -> Updated:
        acted = experience.log_prob
        _, value, next_value = estimates.evaluate(made.network, state.params, experience)
        advantage, target = estimates.estimates(estimate, acted, jnp.zeros_like(acted), experience, value, next_value)
        batch = {"log_prob": acted, "value": value, "advantage": advantage, "target": target}
        return surrogates.descend(config, made, objective, state, experience, key, **batch)

    return policy_gradients.make_learner(config, made, learn, objective)


ppo = Algorithm(
    "ppo",
    PPOConfig,
    problems,
    make_learner,
    teaching.make_trainer,
    sockets=("value-loss", "policy-drift", "optimiser"),
    presets={
        **surrogates.PRESETS,
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
