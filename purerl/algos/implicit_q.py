"""Implicit Q-learning, from recorded play: values of the best recorded actions, and a policy that prefers these.

Kostrikov et al. 2021, "Offline reinforcement learning with implicit Q-learning", arXiv 2110.06169, algorithm 1. It is
called IQL there; `iql` is independent Q-learning of several agents. No critic is ever asked about an action that was
not recorded: V is an expectile of the target critics over the recorded actions (eq. 5), Q learns from V (eq. 6), and
the policy is regressed to the recorded actions, weighted by their advantages (eq. 7).
"""

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import distributions, td_errors
from purerl.formulas import offline as formulas
from purerl.learners.families import off_policy_gradients, offline
from purerl.learners.families.off_policy_gradients import Acting, Batch, OffPolicyGradientState
from purerl.learners.parts import settings
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.networks.heads import Head
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated

LOG_STD_RANGE = -5.0, 2.0
"""The range to which the logarithm of the policy's standard deviation is clipped, as in the authors' code."""


@cfg.config
class ImplicitQConfig(offline.OfflineConfig):
    """Settings of implicit Q-learning."""

    expectile: cfg.OpenFraction = 0.7
    """Expectile (tau) of the recorded actions' values that V learns. 0.5: their mean; near 1: nearly their maximum."""
    inverse_temperature: cfg.NonNegative = 3.0
    """Factor (beta) of advantages in the weights exp(beta * advantage) of recorded actions. 0: behaviour cloning."""
    max_weight: cfg.Positive = 100.0
    """Largest weight of a recorded action."""


def make_network(config: ImplicitQConfig, env: Env) -> ActorAndCritics:
    """Makes an actor of means, before their tanh, and logarithms of standard deviations; and critics."""
    return off_policy_gradients.networks_for_box(config, env, 2)


def gaussian(out: Array) -> Array:
    """Returns the parameters ``[..., 2 * D]`` of `distributions.gaussian` that an actor's outputs stand for.

    They are means in [-1, 1], and logarithms of standard deviations within `LOG_STD_RANGE`.
    """
    mean, log_std = jnp.split(out, 2, axis=-1)
    return jnp.concatenate([jnp.tanh(mean), jnp.clip(log_std, *LOG_STD_RANGE)], axis=-1)


def gaussian_acting(env: Env, network: ActorAndCritics) -> Acting:
    """Makes the acting of a Gaussian policy, whose samples are clipped to the box of ``env``. It explores nothing."""
    policy, box = distributions.gaussian(env.action_space), env.action_space

    def exploit(actor: PyTree, obs: PyTree) -> Array:
        return policy.mode(gaussian(network.act(actor, obs)))

    def sample(actor: PyTree, obs: PyTree, noise: Array) -> Array:
        return jnp.clip(policy.sample(gaussian(network.act(actor, obs)), noise), box.low, box.high)

    return Acting(policy.noise, None, exploit, sample=sample)


def make_learner(
    config: ImplicitQConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[offline.OfflineParts]
) -> Learner:
    """Makes the `Learner` of implicit Q-learning.

    Args:
        config: Settings of the algorithm.
        env: Environment whose play is learned from.
        network: A `critics.ActorAndCritics` for a box, with two outputs of the actor for each dimension; None:
            `make_network`.
        **parts: ``optimiser``, in place of Adam.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    values = Head(settings.make_torso(config, env, config.critic_sizes), 1, scale=1.0)
    _, to_unit = off_policy_gradients.units(env.action_space)
    policy = distributions.gaussian(env.action_space)
    agent = offline.make_agent(config, gaussian_acting(env, network), ("critic",), **parts)

    def init_params(key: Key, obs: PyTree) -> dict[str, PyTree]:
        key_network, key_value = jax.random.split(key)
        return {**network.init(key_network, obs), "value": values.init(key_value, obs)}

    def value(params: PyTree, obs: PyTree) -> Array:
        out: Any = values.apply(params, obs)
        return out[..., 0]

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        return agent.critic_loss(network.q_values(critic, batch.obs, to_unit(batch.action)), batch)

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        batch = agent.batch(state, sample, ())
        batch = agent.with_target(batch, value(state.params["value"], batch.next_obs))
        action = to_unit(batch.action)
        target_q = td_errors.least(network.q_values(state.target_params["critic"], batch.obs, action))

        def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
            """V and the policy share no parameters, so the gradient of the sum is that of each."""
            advantage = target_q - value(params["value"], batch.obs)
            weight = formulas.advantage_weight(advantage, config.inverse_temperature, config.max_weight)
            log_prob = policy.log_prob(gaussian(network.act(params["actor"], batch.obs)), batch.action)
            of_value = formulas.expectile_loss(advantage, config.expectile)
            metrics = {"advantage_weight": jnp.mean(weight), "value_loss": jnp.mean(batch.weight * of_value)}
            return jnp.mean(batch.weight * (of_value - weight * log_prob)), metrics

        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return offline.make_learner(config, agent, init_params, update, kept=("critic", "value"))


implicit_q: Algorithm[...] = Algorithm(  # ``make_trainer`` takes ``data`` beside the parts of the learner
    "implicit-q",
    ImplicitQConfig,
    offline.problems,
    make_learner,
    offline.make_trainer,
    datasets=("data",),
    wrappers=(),
)
