"""Soft actor-critic with discrete actions (Christodoulou 2019, arXiv 1910.07207).

Expectations over actions are sums, so nothing is sampled while learning.
"""

from typing import Annotated, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import sac
from purerl.algos.algorithm import Algorithm
from purerl.formulas import distributions, exploration, soft, td_errors
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Acting, Batch, CriticParts, OffPolicyGradientState
from purerl.learners.parts import joint_actions, settings
from purerl.networks import critics
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config
class SACDiscreteConfig(off_policy_gradients.OffPolicyGradientConfig, sac.Temperature):
    """Settings of SAC with discrete actions."""

    target_entropy: Annotated[cfg.Fraction, sac.WHILE_LEARNED] = 0.5
    """Target entropy of the policy, as a fraction of the entropy of uniform actions."""


def problems(config: SACDiscreteConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    return off_policy_gradients.problems(config, env, (Discrete, MultiDiscrete)) + joint_actions.problems(env)


def make_network(config: SACDiscreteConfig, env: Env) -> ActorAndCritics:
    """Makes an actor of logits, and critics of all actions."""
    torso = settings.make_torso(config, env)
    of_critics = settings.make_torso(config, env, config.critic_sizes)
    return critics.for_discrete(joint_actions.joint_actions(env).num, config.num_critics, torso, of_critics)


def make_learner(
    config: SACDiscreteConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes discrete SAC's `Learner`: a categorical policy over the legal ones of ``A`` joint actions.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `critics.ActorAndCritics` for discrete actions; None: `make_network`.
        **parts: The remaining arguments of `off_policy_gradients.make_agent`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    actions = joint_actions.joint_actions(env)
    categorical = distributions.categorical(actions.num)

    def logits(actor: PyTree, obs: PyTree) -> Array:
        return exploration.masked(network.act(actor, obs), actions.legal(obs))

    acting = Acting(
        noise=categorical.noise,
        explore=None,
        exploit=lambda actor, obs: actions.action(categorical.mode(logits(actor, obs))),
        sample=lambda actor, obs, noise: actions.action(categorical.sample(logits(actor, obs), noise)),
    )
    agent = off_policy_gradients.make_agent(config, acting, target_networks=("critic",), tau=config.tau, **parts)

    def soft_values(actor: PyTree, critic: PyTree, obs: PyTree, temperature: Array) -> tuple[Array, Array]:
        """Computes soft values of the policy, by the lowest of the critics, and its entropies, both ``[N]``."""
        log_probs = jax.nn.log_softmax(logits(actor, obs))
        q = td_errors.least(jnp.moveaxis(network.q_values(critic, obs), -2, -1))
        entropy = soft.expected_soft_value(jnp.zeros_like(q), log_probs, 1.0)
        return soft.expected_soft_value(q, log_probs, temperature), entropy

    def target_entropy(obs: PyTree) -> Array:
        legal = actions.legal(obs)
        count = actions.num if legal is None else jnp.sum(legal, axis=-1)
        return config.target_entropy * jnp.log(jnp.float32(count))

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        chosen = jax.nn.one_hot(actions.number(batch.action), actions.num)
        q = jnp.sum(network.q_values(critic, batch.obs) * chosen[:, None], axis=-1)
        return agent.critic_loss(q, batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        value, entropy = soft_values(params["actor"], critic, batch.obs, sac.temperature(params))
        each, metrics = sac.with_temperature(config, params, -value, entropy, target_entropy(batch.obs))
        return jnp.mean(batch.weight * each), metrics

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        batch = agent.batch(state, sample, ())
        temperature = sac.temperature(state.params)
        next_value, _ = soft_values(state.params["actor"], state.target_params["critic"], batch.next_obs, temperature)
        batch = agent.with_target(batch, next_value)
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return agent.learner(lambda key, obs: sac.init_params(config, network, key, obs), update, kept=sac.kept(config))


sac_discrete = Algorithm(
    "sac-discrete",
    SACDiscreteConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
)
