"""Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018, arXiv 1806.06920).

With the bounds of arXiv 1812.02256 for Gaussian policies: one for means, and one for standard deviations.
"""

from collections.abc import Callable
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl import draw
from purerl.algos import ddpg
from purerl.algos.algorithm import Algorithm
from purerl.counters import Count
from purerl.formulas import distributions, divergences, exploration, soft, td_errors
from purerl.formulas.divergences import Divergences
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Acting, Batch, CriticParts, OffPolicyGradientState
from purerl.learners.parts import duals, joint_actions, settings
from purerl.learners.parts.duals import DualState
from purerl.networks import critics
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(tau=0.02)
class MPOConfig(duals.DualSettings, off_policy_gradients.OffPolicyGradientConfig):
    """Settings of MPO."""

    action_samples: cfg.Count = 20
    """Number of actions that are sampled in each state of a batch, where actions are continuous. Discrete ones are all
    taken into account."""


class MPOState(NamedTuple):
    """The learner's state: that of every learner with critics from replay, and the dual variables."""

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    critic_opt_state: PyTree
    actor_opt_state: PyTree
    obs_moments: PyTree
    updates: Count
    waited: Array
    resets: PyTree
    duals: DualState


class Candidates(NamedTuple):
    """Actions that a policy may take in ``N`` states: all ``A`` that there are, or ``A`` samples.

    - ``policy``: the policy's parameters ``[N, ...]``.
    - ``log_prior``: logarithms of the actions' probabilities, equal ones for samples ``[N, A]``.
    - ``value``: the smallest of the critics' values of each ``[N, A]``.
    - ``action``: the samples ``[N, A, D]`` in units of networks, which may lie outside of [-1, 1]; ``()`` for all.
    """

    policy: Array
    log_prior: Array
    value: Array
    action: Array | tuple[()] = ()

    @property
    def mean_value(self) -> Array:
        """What the states are worth under the policy ``[N]``."""
        return jnp.sum(jnp.exp(self.log_prior) * self.value, axis=-1)


class Actions(NamedTuple):
    """What depends on the kind of actions. Observations are normalised.

    - ``acting``: how it explores and exploits.
    - ``policy(actor, obs)``: parameters of the policy's distribution ``[N, ...]``.
    - ``candidates(params, obs, key)``: actions of the policy and their values, by the same parameters.
    - ``log_prob(candidates, policy)``: what the M-step makes likely ``[N, A]``, for new parameters of the policy.
    - ``q_values(critic, obs, action)``: values of the actions of a replay ``[N, K]``.
    - ``bounded``: the policy's divergences.
    """

    acting: Acting
    policy: Callable[[PyTree, PyTree], Array]
    candidates: Callable[[dict[str, PyTree], PyTree, Key], Candidates]
    log_prob: Callable[[Candidates, Array], Array]
    q_values: Callable[[PyTree, PyTree, Array], Array]
    bounded: Divergences


def problems(config: MPOConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete, MultiDiscrete or a bounded Box.
    """
    kinds = Discrete, MultiDiscrete, Box
    return off_policy_gradients.problems(config, env, kinds) + joint_actions.problems(env)


def make_network(config: MPOConfig, env: Env) -> ActorAndCritics:
    """Makes an actor of means before their tanh and logarithms of standard deviations, or of logits; and critics."""
    if isinstance(env.action_space, Box):
        return off_policy_gradients.networks_for_box(config, env, 2)
    torso = settings.make_torso(config, env)
    of_critics = settings.make_torso(config, env, config.critic_sizes)
    return critics.for_discrete(joint_actions.joint_actions(env).num, config.num_critics, torso, of_critics)


def box_actions(config: MPOConfig, env: Env, network: ActorAndCritics) -> Actions:
    """Makes a Gaussian policy whose means are in [-1, 1], the units of networks.

    What it samples outside of the box is clipped where it is executed or valued.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in, with actions in a box.
        network: The actor and the critics.
    """
    to_box, to_unit = off_policy_gradients.units(env.action_space)
    free = off_policy_gradients.free_dimensions(env.action_space)
    moves = np.ones(network.size, bool) if free is None else free
    gaussian = distributions.gaussian(Box(-1.0 * moves, 1.0 * moves, (network.size,), jnp.float32))

    def policy(actor: PyTree, obs: PyTree) -> Array:
        mean, log_std = jnp.split(network.act(actor, obs), 2, axis=-1)
        return jnp.concatenate([jnp.tanh(mean), jnp.clip(log_std, *soft.LOG_STD_RANGE)], axis=-1)

    def candidates(params: dict[str, PyTree], obs: PyTree, key: Key) -> Candidates:
        of_policy = policy(params["actor"], obs)
        shape = len(of_policy), config.action_samples
        action = gaussian.sample(of_policy[:, None], draw.normal(key, (*shape, network.size)))
        value = lambda one: network.q_values(params["critic"], obs, one)
        q = jax.vmap(value, in_axes=1, out_axes=1)(jnp.clip(action, -1.0, 1.0))  # [N, A, K]
        return Candidates(of_policy, jnp.full(shape, -jnp.log(config.action_samples)), td_errors.least(q), action)

    def log_prob(given: Candidates, new: Array) -> Array:
        """Sums that of new means with old deviations, and of old means with new deviations (arXiv 1812.02256)."""
        (old_mean, old_log_std), (mean, log_std) = (jnp.split(x, 2, axis=-1) for x in (given.policy, new))
        parts = [jnp.concatenate(part, axis=-1) for part in ((mean, old_log_std), (old_mean, log_std))]
        of_action = lambda action: gaussian.log_prob(parts[0], action) + gaussian.log_prob(parts[1], action)
        log_probs: Array = jax.vmap(of_action, in_axes=1, out_axes=1)(given.action)
        return log_probs

    def sample(actor: PyTree, obs: PyTree, noise: Array) -> Array:
        return to_box(jnp.clip(gaussian.sample(policy(actor, obs), noise), -1.0, 1.0))

    exploit = lambda actor, obs: to_box(gaussian.mode(policy(actor, obs)))
    return Actions(
        Acting(gaussian.noise, None, exploit, sample=sample),
        policy,
        candidates,
        log_prob,
        lambda critic, obs, action: network.q_values(critic, obs, to_unit(action)),
        divergences.gaussian(moves),
    )


def discrete_actions(env: Env, network: ActorAndCritics) -> Actions:
    """Makes a categorical policy over the legal ones of ``A`` joint actions, all of which are candidates."""
    actions = joint_actions.joint_actions(env)
    categorical = distributions.categorical(actions.num)

    def policy(actor: PyTree, obs: PyTree) -> Array:
        return exploration.masked(network.act(actor, obs), actions.legal(obs))

    def candidates(params: dict[str, PyTree], obs: PyTree, key: Key) -> Candidates:
        of_policy = policy(params["actor"], obs)
        q = jnp.moveaxis(network.q_values(params["critic"], obs), -2, -1)  # [N, A, K]
        return Candidates(of_policy, jax.nn.log_softmax(of_policy), td_errors.least(q))

    def q_values(critic: PyTree, obs: PyTree, action: Array) -> Array:
        chosen = jax.nn.one_hot(actions.number(action), actions.num)
        return jnp.sum(network.q_values(critic, obs) * chosen[:, None], axis=-1)

    exploit = lambda actor, obs: actions.action(categorical.mode(policy(actor, obs)))
    sample = lambda actor, obs, noise: actions.action(categorical.sample(policy(actor, obs), noise))
    log_prob = lambda given, new: jax.nn.log_softmax(new)
    bounded = divergences.categorical((actions.num,))
    acting = Acting(categorical.noise, None, exploit, sample=sample)
    return Actions(acting, policy, candidates, log_prob, q_values, bounded)


def make_learner(
    config: MPOConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes MPO's `Learner`: a Gaussian policy in a box, or a categorical one over discrete actions.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `critics.ActorAndCritics`: for a box, with two outputs of the actor for each dimension, or for
            discrete actions; None: `make_network`.
        **parts: The remaining arguments of `off_policy_gradients.make_agent`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    in_box = isinstance(env.action_space, Box)
    actions = box_actions(config, env, network) if in_box else discrete_actions(env, network)
    agent = off_policy_gradients.make_agent(
        config, actions.acting, target_networks=("actor", "critic"), tau=config.tau, **parts
    )
    learner_of_duals, names = duals.make(config, actions.bounded.names), actions.bounded.names

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        return agent.critic_loss(actions.q_values(critic, batch.obs, batch.action), batch)

    def update(state: MPOState, sample: Sample, key: Key) -> Updated:
        before = OffPolicyGradientState(*state[:-1])
        key_next, key_obs = jax.random.split(key)
        batch = agent.batch(before, sample, ())
        following = actions.candidates(state.target_params, batch.next_obs, key_next)
        batch = agent.with_target(batch, following.mean_value)  # reward + discount * mean_value
        given = actions.candidates(state.target_params, batch.obs, key_obs)
        now = state.duals.values
        weights = divergences.e_step_weights(given.value, given.log_prior, now.temperature)  # the E-step: [N, A]

        def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:  # the M-step
            policy = actions.policy(params["actor"], batch.obs)
            each = -jnp.sum(weights * actions.log_prob(given, policy), axis=-1)
            divergence = jnp.mean(batch.weight[:, None] * actions.bounded.between(given.policy, policy), axis=0)  # [C]
            loss = jnp.mean(batch.weight * each) + jnp.sum(now.multipliers * divergence)
            return loss, dict(zip(names, divergence, strict=True))

        learned, metrics, priority = agent.step(before, sample, batch, critic_loss, actor_loss)
        divergence = jnp.stack([metrics[name] for name in names])
        dual, of_duals = learner_of_duals.step(state.duals, given.value, given.log_prior, batch.weight, divergence)
        return Updated(MPOState(**learned._asdict(), duals=dual), {**metrics, **of_duals}, priority)

    return agent.learner(network.init, update, lambda state: MPOState(**state._asdict(), duals=learner_of_duals.init()))


MUJOCO = {
    **ddpg.MUJOCO,
    "n_step": 5,
    "tau": 0.01,
    "num_critics": 1,
    "learning_rate": 1e-4,
    "actor_learning_rate": 1e-4,
    "m_step_kl": 2.5e-3,
    "m_step_kl_deviation": 1e-6,
    "initial_temperature": 10.0,
    "initial_multiplier": 10.0,
}
"""Acme's bounds, step sizes, n steps and samples (github.com/google-deepmind/acme at 40a5f04, acme/agents/jax/mpo:
config.py and types.py) with the sizes of the other algorithms. Differences: Acme bounds the divergence of each
dimension of an action by itself, begins with a multiplier of 1000 for the standard deviations, penalises means outside
of the box, copies its target networks every 100 updates, takes an update for every 8 steps, and its critic is a mixture
of Gaussians."""


mpo = Algorithm(
    "mpo",
    MPOConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={"mujoco": MUJOCO},
)
