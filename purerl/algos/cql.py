"""Conservative Q-learning, from recorded play: soft actor-critic whose critics value unrecorded actions low.

Kumar et al. 2020, "Conservative Q-learning for offline reinforcement learning", arXiv 2006.04779: CQL(H). Its
critics' loss gains the soft maximum of their values over all actions less the value of the recorded one (eq. 4). With
actions in a Box the soft maximum is estimated by importance sampling (appendix F), with discrete ones it is a sum.
"""

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import draw, trees
from purerl.algos import sac
from purerl.algos.algorithm import Algorithm
from purerl.formulas import distributions, exploration, soft, td_errors
from purerl.formulas import offline as formulas
from purerl.learners.families import off_policy_gradients, offline
from purerl.learners.families.off_policy_gradients import Acting, Batch, OffPolicyGradientState
from purerl.learners.parts import joint_actions, settings
from purerl.networks import critics
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config
class CQLConfig(offline.OfflineConfig, sac.Temperature):
    """Settings of CQL."""

    conservatism: cfg.NonNegative = 5.0
    """Weight (alpha) in the critics' loss of the soft maximum over all actions less the recorded action's value. 0: SAC
    on recorded play."""
    action_samples: cfg.Count = 10
    """Number of actions that are drawn uniformly, and again from the policy, for the soft maximum over a Box."""
    target_entropy: Annotated[float, cfg.Range(), sac.WHILE_LEARNED] = -1.0
    """Target entropy of the policy, in nats per dimension of an action in [-1, 1]; of discrete actions in nats, where a
    negative one lets the temperature fall to 0."""


def problems(config: CQLConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on play in ``env`` (None: not known), a line each.

    Actions must be a bounded Box, Discrete or MultiDiscrete.
    """
    return offline.problems(config, env, (Discrete, MultiDiscrete, Box)) + joint_actions.problems(env)


def make_network(config: CQLConfig, env: Env) -> ActorAndCritics:
    """Makes an actor and critics: those of SAC for a Box, those of SAC with discrete actions for others."""
    if isinstance(env.action_space, Box):
        return off_policy_gradients.networks_for_box(config, env, 2)
    torso = settings.make_torso(config, env)
    of_critics = settings.make_torso(config, env, config.critic_sizes)
    return critics.for_discrete(joint_actions.joint_actions(env).num, config.num_critics, torso, of_critics)


class Judge(NamedTuple):
    """How a policy and its critics judge observations ``[N, ...]``.

    - ``noise(key, shape)``, ``everywhere(key, shape)``: the randomness of ``value``, and of ``soft_maximum``.
    - ``value(actor, critic, obs, temperature, noise)``: the policy's soft value by the lowest critic, and its entropy.
    - ``recorded(critic, obs, action)``: the critics' values of recorded actions ``[N, K]``.
    - ``soft_maximum(actor, critic, obs, everywhere)``: ``log integral exp(Q)`` over all actions ``[N, K]``.
    - ``acting``, ``target_entropy``: how it acts, and the entropy in nats that it is to have.
    """

    noise: Callable[[Key, tuple[int, ...]], PyTree]
    everywhere: Callable[[Key, tuple[int, ...]], PyTree]
    value: Callable[[PyTree, PyTree, PyTree, Array, PyTree], tuple[Array, Array]]
    recorded: Callable[[PyTree, PyTree, Array], Array]
    soft_maximum: Callable[[PyTree, PyTree, PyTree, PyTree], Array]
    acting: Acting
    target_entropy: Array | float


def of_box(config: CQLConfig, env: Env, network: ActorAndCritics) -> Judge:
    """Makes what judges actions in a box, by samples of a squashed Gaussian policy."""
    policy = sac.squashed_policy(config, env, network)
    free = off_policy_gradients.free_dimensions(env.action_space)
    moving = network.size if free is None else int(free.sum())

    def value(actor: PyTree, critic: PyTree, obs: PyTree, temperature: Array, noise: Array) -> tuple[Array, Array]:
        action, log_prob = policy.draw(actor, obs, noise)
        return soft.soft_value(network.q_values(critic, obs, action), log_prob, temperature), -log_prob

    def everywhere(key: Key, shape: tuple[int, ...]) -> tuple[Array, Array]:
        key_uniform, key_policy = jax.random.split(key)
        vectors = *shape, config.action_samples, network.size
        uniform = draw.uniform(key_uniform, vectors, -1.0, 1.0)
        uniform = uniform if free is None else jnp.where(trees.like(free, uniform), uniform, 0.0)
        return uniform, draw.normal(key_policy, vectors)

    def soft_maximum(actor: PyTree, critic: PyTree, obs: PyTree, everywhere: tuple[Array, Array]) -> Array:
        """By as many uniform actions as actions of the policy, which a mixture of both distributions has drawn."""
        lead = everywhere[0].shape[:2]  # [N, M]
        uniform, noise = (x.reshape(-1, network.size) for x in everywhere)
        repeated = jax.tree.map(lambda x: jnp.repeat(x, lead[1], axis=0), obs)
        drawn, log_prob = policy.draw(actor, repeated, noise)
        values = lambda action: network.q_values(critic, repeated, action).reshape(*lead, -1)
        q = jnp.concatenate([values(uniform), values(drawn)], axis=1)  # [N, 2 * M, K]
        evenly = jnp.full(lead, -moving * math.log(2))
        log_density = jnp.concatenate([evenly, log_prob.reshape(lead)], axis=1)
        return formulas.log_integral(jnp.moveaxis(q, 1, -1), log_density[:, None])

    recorded = lambda critic, obs, action: network.q_values(critic, obs, policy.executed(action))
    return Judge(policy.acting.noise, everywhere, value, recorded, soft_maximum, policy.acting, policy.target_entropy)


def of_discrete(config: CQLConfig, env: Env, network: ActorAndCritics) -> Judge:
    """Makes what judges discrete actions, by sums over those that are legal."""
    actions = joint_actions.joint_actions(env)
    categorical = distributions.categorical(actions.num)

    def logits(actor: PyTree, obs: PyTree) -> Array:
        return exploration.masked(network.act(actor, obs), actions.legal(obs))

    def value(actor: PyTree, critic: PyTree, obs: PyTree, temperature: Array, noise: PyTree) -> tuple[Array, Array]:
        log_probs = jax.nn.log_softmax(logits(actor, obs))
        q = td_errors.least(jnp.moveaxis(network.q_values(critic, obs), -2, -1))
        entropy = soft.expected_soft_value(jnp.zeros_like(q), log_probs, 1.0)
        return soft.expected_soft_value(q, log_probs, temperature), entropy

    def recorded(critic: PyTree, obs: PyTree, action: Array) -> Array:
        chosen = jax.nn.one_hot(actions.number(action), actions.num)
        return jnp.sum(network.q_values(critic, obs) * chosen[:, None], axis=-1)

    def soft_maximum(actor: PyTree, critic: PyTree, obs: PyTree, everywhere: PyTree) -> Array:
        legal = actions.legal(obs)
        return jax.nn.logsumexp(
            exploration.masked(network.q_values(critic, obs), None if legal is None else legal[:, None]), axis=-1
        )

    nothing = lambda key, shape: ()
    acting = Acting(
        noise=categorical.noise,
        explore=None,
        exploit=lambda actor, obs: actions.action(categorical.mode(logits(actor, obs))),
        sample=lambda actor, obs, noise: actions.action(categorical.sample(logits(actor, obs), noise)),
    )
    return Judge(nothing, nothing, value, recorded, soft_maximum, acting, config.target_entropy)


def make_learner(
    config: CQLConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[offline.OfflineParts]
) -> Learner:
    """Makes CQL's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment whose play is learned from.
        network: A `critics.ActorAndCritics`, for a box with two outputs of the actor for each dimension; None:
            `make_network`.
        **parts: ``optimiser``, in place of Adam.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    judge = (of_box if isinstance(env.action_space, Box) else of_discrete)(config, env, network)
    agent = offline.make_agent(config, judge.acting, ("critic",), **parts)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        value, entropy = judge.value(params["actor"], critic, batch.obs, sac.temperature(params), batch.noise)
        each, metrics = sac.with_temperature(config, params, -value, entropy, judge.target_entropy)
        return jnp.mean(batch.weight * each), metrics

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        key_next, key_actor, key_everywhere = jax.random.split(key, 3)
        size, actor, slow = sample.weight.shape, state.params["actor"], state.target_params["critic"]
        batch = agent.batch(state, sample, judge.noise(key_actor, size))
        noise = judge.noise(key_next, size)
        next_value, _ = judge.value(actor, slow, batch.next_obs, sac.temperature(state.params), noise)
        batch = agent.with_target(batch, next_value)
        everywhere = judge.everywhere(key_everywhere, size)

        def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
            q = judge.recorded(critic, batch.obs, batch.action)  # [N, K]
            loss, (priority, metrics) = agent.critic_loss(q, batch)
            gap = judge.soft_maximum(actor, critic, batch.obs, everywhere) - q
            loss += config.conservatism * jnp.mean(batch.weight * jnp.sum(gap, axis=-1))
            return loss, (priority, {**metrics, "conservative_gap": jnp.mean(batch.weight * jnp.mean(gap, axis=-1))})

        return agent.step(state, sample, batch, critic_loss, actor_loss)

    init = lambda key, obs: sac.init_params(config, network, key, obs)
    return offline.make_learner(config, agent, init, update, sac.kept(config))


cql: Algorithm[...] = Algorithm(  # ``make_trainer`` takes ``data`` beside the parts of the learner
    "cql",
    CQLConfig,
    problems,
    make_learner,
    offline.make_trainer,
    datasets=("data",),
    wrappers=(),
)
