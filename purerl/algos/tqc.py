"""Truncated quantile critics (Kuznetsov et al. 2020, arXiv 2005.04269).

SAC whose critics learn quantiles of the return. Overestimation is kept in check atom by atom: targets are the pooled
atoms of all critics without the largest ones, instead of the whole of the most pessimistic critic.
"""

from typing import Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import sac
from purerl.algos.algorithm import Algorithm
from purerl.algos.ddpg import MUJOCO
from purerl.formulas import return_distributions, soft
from purerl.formulas.return_distributions import Family
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Batch, CriticParts, OffPolicyGradientState
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(num_critics=5)
class TQCConfig(off_policy_gradients.ReplayedCriticsConfig, sac.Temperature):
    """Settings of TQC."""

    num_quantiles: cfg.Count = 25
    """Number of quantiles of the return that each critic learns, at the midpoints of equal parts of [0, 1]."""
    dropped_quantiles: cfg.NonNegativeCount = 2
    """Number of quantiles for each critic that targets leave out: the largest of those of all critics together. More
    estimate less."""
    kappa: cfg.Positive = 1.0
    """Magnitude of the TD error above which the quantile loss is linear instead of quadratic."""
    tau: cfg.Fraction = 0.005
    """Fraction by which target networks move towards the online networks at each of their updates."""


def problems(config: TQCConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be those of a bounded Box.
    """
    problems = off_policy_gradients.problems(config, env)
    if config.dropped_quantiles >= config.num_quantiles:
        problems.append(
            f"dropped_quantiles = {config.dropped_quantiles}: must be below num_quantiles = {config.num_quantiles}"
        )
    return problems


def make_family(config: TQCConfig) -> Family:
    """Makes the family of the distributions that critics learn."""
    return return_distributions.quantiles(config.num_quantiles, config.kappa)


def make_network(config: TQCConfig, env: Env) -> ActorAndCritics:
    """Makes SAC's actor, and critics of quantiles."""
    return off_policy_gradients.networks_for_box(config, env, 2, make_family(config))


def make_learner(
    config: TQCConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes TQC's `Learner`; the parts are those of `sac.make_learner`, and critics give ``[N, K, num_quantiles]``."""
    network = given_or_own(network, make_network(config, env), env.observation_space)
    policy = sac.squashed_policy(config, env, network)
    agent = off_policy_gradients.make_agent(
        config, policy.acting, target_networks=("critic",), tau=config.tau, family=make_family(config), **parts
    )

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        quantiles = network.q_values(critic, batch.obs, policy.executed(batch.action))  # [N, K, J]
        return agent.critic_loss(quantiles, batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        """The actor climbs the mean of all atoms: nothing is truncated here (eq. 13)."""
        action, log_prob = policy.draw(params["actor"], batch.obs, batch.noise)
        quantiles = network.q_values(critic, batch.obs, action)
        value = soft.less_cost(jnp.mean(quantiles, axis=(-2, -1)), log_prob, sac.temperature(params))
        each, metrics = sac.with_temperature(config, params, -value, -log_prob, policy.target_entropy)
        return jnp.mean(batch.weight * each), metrics

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        key_next, key_actor = jax.random.split(key)
        size = sample.weight.shape
        batch = agent.batch(state, sample, policy.acting.noise(key_actor, size))
        noise = policy.acting.noise(key_next, size)
        action, log_prob = policy.draw(state.params["actor"], batch.next_obs, noise)
        next_quantiles = network.q_values(state.target_params["critic"], batch.next_obs, action)
        atoms = return_distributions.truncated(next_quantiles, config.dropped_quantiles)
        next_return = soft.less_cost(atoms, log_prob, sac.temperature(state.params))
        batch = agent.with_target(batch, next_return)  # reward + discount * next_return, atom by atom
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return agent.learner(lambda key, obs: sac.init_params(config, network, key, obs), update, kept=sac.kept(config))


tqc = Algorithm(
    "tqc",
    TQCConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    presets={"mujoco": {**MUJOCO, "critic_hidden_sizes": (512, 512, 512)}},
)
