"""Deep deterministic policy gradients (Lillicrap et al. 2016, arXiv 1509.02971)."""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import draw, trees
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import (
    Acting,
    Batch,
    CriticParts,
    OffPolicyGradientState,
)
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated

WITH_DRIFT = cfg.Needs("noise = 'ornstein-uhlenbeck'", lambda config: config.noise == "ornstein-uhlenbeck")
WITHOUT_DRIFT = cfg.Needs("noise = 'gaussian'", lambda config: config.noise == "gaussian")


@cfg.config(num_critics=1)
class DDPGConfig(off_policy_gradients.CriticKindConfig):
    """Settings of DDPG."""

    noise: Literal["gaussian", "ornstein-uhlenbeck"] = "gaussian"
    """Exploration noise added to actions. gaussian: independent at each step. ornstein-uhlenbeck: correlated over
    steps, decaying to 0."""
    noise_deviation: cfg.NonNegative = 0.2
    """Standard deviation of the noise per step, for actions scaled to [-1, 1]."""
    noise_deviation_max: Annotated[float | int, cfg.Range(0), WITHOUT_DRIFT] = 0
    """If not 0, each environment draws its standard deviation uniformly between noise_deviation and this, anew for each
    episode, so that many environments explore in different ways."""
    noise_damping: Annotated[cfg.Fraction, WITH_DRIFT] = 0.15
    """Fraction by which the noise decays at each step."""


def problems(config: DDPGConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be a bounded Box, and a range of noise must have its ends in order.
    """
    low, high = config.noise_deviation, config.noise_deviation_max
    wrong = high and cfg.known(low) and low > high
    lines = [f"noise_deviation_max = {high}: must be 0 or at least noise_deviation = {low}"] if wrong else []
    return lines + off_policy_gradients.kind_problems(config, env)


def make_network(config: DDPGConfig, env: Env) -> ActorAndCritics:
    """Makes an actor, whose outputs are actions before their tanh, and critics."""
    family = off_policy_gradients.family_of(config)
    return off_policy_gradients.networks_for_box(config, env, 1, family, config.critic_dropout)


class Noise(NamedTuple):
    """The randomness of actions: normal and uniform vectors ``[..., D]``, and what a deviation ``[...]`` is drawn by.

    ``size`` is ``()`` where all environments have the same deviation.
    """

    normal: Array
    random: Array
    size: PyTree


class BoxPolicy(NamedTuple):
    """A deterministic policy of actions in a box. Its actions are vectors ``[..., D]`` in [-1, 1].

    - ``act(actor, obs)``: the action of the policy.
    - ``q_values(critic, obs, action, dropout)``: the critics' values ``[..., K]``, or outputs ``[..., K, J]``.
    - ``executed(action)``: the action that stands in a replay, as such a vector.
    - ``acting``: how it explores and exploits.
    """

    act: Callable[[PyTree, PyTree], Array]
    q_values: Callable[[PyTree, PyTree, Array, Key | tuple[()]], Array]
    executed: Callable[[Array], Array]
    acting: Acting


def box_policy(config: DDPGConfig, env: Env, network: ActorAndCritics) -> BoxPolicy:
    """Makes a deterministic policy, which acts at random until the first update.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in, with actions in a box.
        network: The actor and the critics.
    """
    to_box, to_unit = off_policy_gradients.units(env.action_space)
    free = off_policy_gradients.free_dimensions(env.action_space)

    def act(params: PyTree, obs: PyTree) -> Array:
        return jnp.tanh(network.act(params, obs))

    def q_values(params: PyTree, obs: PyTree, action: Array, dropout: Key | tuple[()]) -> Array:
        """Returns the critics' values; dimensions that are constants are 0, as in what was executed."""
        seen = action if free is None else jnp.where(trees.like(free, action), action, 0.0)
        return network.q_values(params, obs, seen, dropout=dropout)

    differs = config.noise == "gaussian" and config.noise_deviation_max > 0

    def noise(key: Key, shape: tuple[int, ...]) -> Noise:
        key_normal, key_uniform, *key_size = jax.random.split(key, 3 if differs else 2)
        vectors = *shape, network.size
        size = draw.uniform(key_size[0], shape) if differs else ()
        return Noise(draw.normal(key_normal, vectors), draw.uniform(key_uniform, vectors, -1.0, 1.0), size)

    def explore(actor: PyTree, updated: Array, obs: PyTree, carry: PyTree, noise: Noise) -> tuple[Array, PyTree]:
        normal, random, size = noise
        if differs:
            carry = exploration.kept_or_drawn(carry, size, config.noise_deviation, config.noise_deviation_max)
            disturbance = carry[:, None] * normal
        elif config.noise == "gaussian":
            disturbance = config.noise_deviation * normal
        else:
            carry = exploration.ornstein_uhlenbeck(carry, normal, config.noise_damping, config.noise_deviation)
            disturbance = carry
        action = jnp.clip(act(actor, obs) + disturbance, -1.0, 1.0)
        return to_box(jnp.where(updated, action, random)), carry

    def init_carry(num_envs: int) -> PyTree:
        if differs:
            return jnp.zeros(num_envs)
        return () if config.noise == "gaussian" else jnp.zeros((num_envs, network.size))

    return BoxPolicy(
        act, q_values, to_unit, Acting(noise, explore, lambda actor, obs: to_box(act(actor, obs)), init_carry)
    )


def make_learner(
    config: DDPGConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes DDPG's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `critics.ActorAndCritics` for a box; None: `make_network`.
        **parts: The remaining arguments of `off_policy_gradients.make_agent`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    policy = box_policy(config, env, network)
    family = off_policy_gradients.family_of(config)
    agent = off_policy_gradients.make_agent(
        config, policy.acting, target_networks=("actor", "critic"), tau=config.tau, family=family, **parts
    )

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        q = network.q_values(critic, batch.obs, policy.executed(batch.action), dropout=batch.dropout.critic)
        return agent.critic_loss(q, batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        q = policy.q_values(critic, batch.obs, policy.act(params["actor"], batch.obs), batch.dropout.actor)
        value = agent.values(q)[..., 0]
        return jnp.mean(batch.weight * -value), {}

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        dropout = off_policy_gradients.dropout(config, key)
        _, key_actor = jax.random.split(key)
        batch = agent.batch(state, sample, policy.acting.noise(key_actor, sample.weight.shape), dropout)
        action = policy.act(state.target_params["actor"], batch.next_obs)
        next_q = policy.q_values(state.target_params["critic"], batch.next_obs, action, dropout.target)
        batch = agent.with_target(batch, *agent.least(next_q))
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return agent.learner(network.init, update)


MUJOCO = {
    "total_steps": 1_000_000,
    "num_envs": 1,
    "num_steps": 1,
    "num_updates": 1,
    "batch_size": 256,
    "warmup_steps": 10_000,
    "learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "hidden_sizes": (256, 256),
}
"""Sizes from the papers of SAC and TD3 for robots (Haarnoja et al. 2018, arXiv 1812.05905, table 1; Fujimoto's own
code for TD3, which waits longer before its first update). Defaults are for tasks of a few numbers."""


ddpg = Algorithm(
    "ddpg",
    DDPGConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={"mujoco": MUJOCO},
)
