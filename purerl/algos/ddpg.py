"""Deep deterministic policy gradients (Lillicrap et al. 2016, arXiv 1509.02971)."""

from typing import Annotated, Literal, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import draw, trees
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration, td_errors
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import CriticParts, Method, problems
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree

WITH_DRIFT = cfg.Needs("noise = 'ornstein-uhlenbeck'", lambda config: config.noise == "ornstein-uhlenbeck")


@cfg.config(num_critics=1)
class DDPGConfig(off_policy_gradients.OffPolicyGradientConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    noise: Literal["gaussian", "ornstein-uhlenbeck"] = "gaussian"
    """Exploration noise added to actions. gaussian: independent at each step. ornstein-uhlenbeck: correlated over
    steps, decaying to 0."""
    noise_deviation: cfg.NonNegative = 0.2
    """Standard deviation of the noise per step, for actions scaled to [-1, 1]."""
    noise_damping: Annotated[cfg.Fraction, WITH_DRIFT] = 0.15
    """Fraction by which the noise decays at each step."""


def make_network(config: DDPGConfig, env: Env) -> ActorAndCritics:
    """Makes an actor, whose outputs are actions before their tanh, and critics."""
    return off_policy_gradients.networks_for_box(config, env, 1)


def make_method(config: DDPGConfig, env: Env, network: ActorAndCritics, smooth=lambda action, noise: action) -> Method:
    """Makes a deterministic policy and its losses. The policy acts at random until the first update.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in, with actions in a box.
        network: The actor and the critics.
        smooth: ``smooth(action, noise)`` changes the actions ``[N, D]``, in [-1, 1], by which next states are
            evaluated; ``noise`` is standard normal.
    """
    to_box, to_unit = off_policy_gradients.units(env.action_space)
    moves = off_policy_gradients.moving(env.action_space)

    def act(params: PyTree, obs: PyTree) -> Array:
        return jnp.tanh(network.act(params, obs))

    def judge(params: PyTree, obs: PyTree, action: Array) -> Array:
        """Returns the critics' values; dimensions that are constants are 0, as in what was executed."""
        seen = action if moves is None else jnp.where(trees.like(moves, action), action, 0.0)
        return network.judge(params, obs, seen)

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[Array, Array]:
        key_normal, key_uniform = jax.random.split(key)
        shape = *shape, network.size
        return draw.normal(key_normal, shape), draw.uniform(key_uniform, shape, -1.0, 1.0)

    def explore(
        actor: PyTree, updated: Array, obs: PyTree, carry: PyTree, noise: tuple[Array, Array]
    ) -> tuple[Array, PyTree]:
        normal, random = noise
        if config.noise == "gaussian":
            disturbance = config.noise_deviation * normal
        else:
            carry = exploration.ornstein_uhlenbeck(carry, normal, config.noise_damping, config.noise_deviation)
            disturbance = carry
        action = jnp.clip(act(actor, obs) + disturbance, -1.0, 1.0)
        return to_box(jnp.where(updated, action, random)), carry

    def next_value(params: dict, target_params: dict, next_obs: PyTree, noise: tuple[Array, Array]) -> Array:
        action = smooth(act(target_params["actor"], next_obs), noise[0])
        return td_errors.least(judge(target_params["critic"], next_obs, action))

    def actor_loss(moving: dict, critic: PyTree, obs: PyTree, noise: PyTree) -> tuple[Array, Metrics]:
        return -judge(critic, obs, act(moving["actor"], obs))[..., 0], {}

    return Method(
        init=network.init,
        noise=noise,
        explore=explore,
        exploit=lambda params, obs: to_box(act(params, obs)),
        value=lambda params, obs, action: network.judge(params, obs, to_unit(action)),
        next_value=next_value,
        actor_loss=actor_loss,
        targets=("actor", "critic"),
        init_carry=lambda num_envs: () if config.noise == "gaussian" else jnp.zeros((num_envs, network.size)),
    )


def make_learner(
    config: DDPGConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes DDPG's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `critics.ActorAndCritics` for a box; None: `make_network`.
        **parts: The remaining arguments of `off_policy_gradients.make_learner`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    method = make_method(config, env, network)
    return off_policy_gradients.make_learner(config, env, method, **parts)


ddpg = Algorithm(
    "ddpg",
    DDPGConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    sockets=("td-loss", "optimiser"),
    presets={"mujoco": off_policy_gradients.MUJOCO},
)
