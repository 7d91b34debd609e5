"""Asynchronous PPO: PPO's epochs on experience of older parameters, with V-trace and a target network.

It follows Sample Factory (Petrenko et al. 2020, arXiv 2006.11751) and IMPACT (Luo et al. 2020, arXiv 1912.00167).
"""

from typing import Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import losses
from purerl.learners.families import policy_gradients, surrogates
from purerl.learners.families.policy_gradients import ActorCriticParts, PolicyGradientState, ValueLoss
from purerl.learners.families.surrogates import Objective, problems
from purerl.learners.parts import estimates, teaching, versions
from purerl.learners.parts.estimates import Experience
from purerl.learners.parts.lifetimes import Timed
from purerl.types import Env, Key, Learner, PyTree, Updated

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


@cfg.config(normalize_reward=True)
class APPOConfig(surrogates.SurrogateConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    trace_lambda: cfg.Fraction = 1.0
    """Trace parameter (lambda) of V-trace's targets."""
    rho_bar: cfg.Positive = 1.0
    """V-trace's rho-bar: upper clip of the importance weight of a step's own TD error."""
    c_bar: cfg.Positive = 1.0
    """V-trace's c-bar: upper clip of the trace weight, which propagates later TD errors back."""
    target_period: cfg.Count = 1
    """Iterations between two updates of the target network."""
    ratio_bound: cfg.Positive = 2.0
    """Upper clip of the ratio of the target policy's probability of an action to that of the policy that acted."""


def make_learner(
    config: APPOConfig,
    env: Env,
    *,
    objective: Objective | Timed = losses.clipped_surrogate,
    value_loss: ValueLoss = losses.clipped_value_loss,
    **parts: Unpack[ActorCriticParts],
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
        **parts: The remaining arguments of `policy_gradients.make_parts`.
    """
    made = policy_gradients.make_parts(config, env, value_loss=value_loss, **parts)
    estimate = estimates.by_weights(estimates.vtrace_weights, config)

    def learn(state: PolicyGradientState, experience: Experience, key: Key) -> Updated:
        policy, _, _ = estimates.evaluate(made.network, state.target_params, experience)
        _, value, next_value = estimates.evaluate(made.network, state.params, experience)
        log_prob = made.distribution.log_prob(policy, experience.action)
        advantage, target = estimates.estimates(
            estimate, log_prob, log_prob - experience.log_prob, experience, value, next_value
        )
        reference = jnp.maximum(log_prob, experience.log_prob - jnp.log(config.ratio_bound))
        batch = {"log_prob": reference, "value": value, "advantage": advantage, "target": target}
        updated = surrogates.descend(config, made, objective, state, experience, key, **batch)
        age = jnp.asarray(state.target_age)
        params, age = versions.refresh(updated.state.params, state.target_params, age, config.target_period)
        return updated._replace(state=updated.state._replace(target_params=params, target_age=age))

    def init(key: Key, obs: PyTree) -> PolicyGradientState:
        state = learner.init(key, obs)
        return state._replace(target_params=state.params, target_age=jnp.zeros((), jnp.int32))

    learner = policy_gradients.make_learner(config, made, learn, objective)
    return learner._replace(init=init)


appo = Algorithm(
    "appo",
    APPOConfig,
    problems,
    make_learner,
    teaching.make_trainer,
    sockets=("value-loss", "policy-drift", "optimiser"),
    presets={**surrogates.PRESETS, "sample-factory": SAMPLE_FACTORY},
)
