"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561): actors with old parameters, and V-trace to correct for them."""

from collections.abc import Callable
from typing import Any, Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import losses
from purerl.learners.families import policy_gradients
from purerl.learners.families.policy_gradients import ActorCriticParts, PolicyGradientState, ValueLoss, problems
from purerl.learners.parts import estimates, teaching
from purerl.learners.parts.estimates import Columns, Experience
from purerl.types import Array, Env, Key, Learner, Updated

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


@cfg.config(num_envs=8, num_steps=20, learning_rate=4e-3, max_grad_norm=5.0, normalize_reward=True)
class ImpalaConfig(policy_gradients.PolicyGradientConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    corrected: bool = True
    """Correct for off-policy experience by V-trace. If False, experience is treated as on-policy, as in GA3C
    (Babaeizadeh et al. 2017)."""
    trace_lambda: cfg.Fraction = 1.0
    """Trace parameter (lambda) of V-trace's targets."""
    rho_bar: cfg.Positive = 1.0
    """V-trace's rho-bar: upper clip of the importance weight of a step's own TD error."""
    c_bar: cfg.Positive = 1.0
    """V-trace's c-bar: upper clip of the trace weight, which propagates later TD errors back."""


def make_learner(
    config: ImpalaConfig,
    env: Env,
    *,
    weights: Callable[[Array, Any], tuple[Array, Array]] = estimates.vtrace_weights,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[ActorCriticParts],
) -> Learner:
    """Makes IMPALA's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        weights: ``weights(log_ratio, config) -> (rho, c)``, elementwise.
        value_loss: ``value_loss(value, old_value, target, config)``, elementwise, is minimised.
        **parts: The remaining arguments of `policy_gradients.make_parts`.
    """
    made = policy_gradients.make_parts(config, env, value_loss=value_loss, **parts)
    weighted = estimates.by_weights(weights, config)

    def estimate(columns: Columns) -> tuple[Array, Array]:
        return weighted(columns if config.corrected else columns._replace(log_ratio=jnp.zeros_like(columns.log_ratio)))

    def learn(state: PolicyGradientState, experience: Experience, key: Key) -> Updated:
        return policy_gradients.descend(config, made, estimate, state, experience)

    return policy_gradients.make_learner(config, made, learn)


impala = Algorithm(
    "impala",
    ImpalaConfig,
    problems,
    make_learner,
    teaching.make_trainer,
    sockets=("vtrace-weight", "optimiser"),
    presets={
        "image": {**policy_gradients.IMAGE, "trace_lambda": 0.95},
        "memory": policy_gradients.MEMORY,
        "continuous": {**policy_gradients.CONTINUOUS, "trace_lambda": 0.95},
        "seed-rl": SEED_RL,
    },
)
