"""Behaviour cloning: a policy learns by regression to act as the players of recorded play did.

Pomerleau 1991, "Efficient training of artificial neural networks for autonomous navigation". In a bounded Box it is
deterministic and learns the squared distance to the recorded action, as the baseline of Fujimoto & Gu 2021 (arXiv
2106.06860, section 5); with discrete actions it learns the cross-entropy. Rewards and next observations are not read.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack, cast

import flax.linen as nn
import jax.numpy as jnp

from purerl import config as cfg
from purerl import counters, trees
from purerl.algos.algorithm import Algorithm
from purerl.counters import Count
from purerl.formulas import distributions, exploration
from purerl.learners.families import off_policy_gradients, offline
from purerl.learners.families.off_policy_gradients import OffPolicyGradientPolicy
from purerl.learners.parts import from_data, gradients, joint_actions, normalize, settings
from purerl.networks.given import given_or_own
from purerl.networks.heads import Head
from purerl.replay.fixed import Held
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import (
    Array,
    Dataset,
    Env,
    Key,
    Learner,
    PyTree,
    Sample,
    Situation,
    Trainer,
    Updated,
)


@cfg.config(
    learning_rate=3e-4,
    learning_rate_decay=0.0,
    max_grad_norm=offline.UNCLIPPED,
    hidden_sizes=(256, 256),
    activation="relu",
)
class BCConfig(from_data.DataConfig, settings.Torso, settings.Adam):
    """Settings of behaviour cloning."""

    normalize_obs: bool = True
    """Standardise observations by the mean and standard deviation of the dataset, which are saved with the policy."""


class BCState(NamedTuple):
    """The learner's state: ``params`` and moments as `OffPolicyGradientPolicy` has them, and the optimiser's state."""

    params: PyTree
    obs_moments: PyTree
    opt_state: PyTree
    updates: Count


def problems(config: BCConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on play in ``env`` (None: not known), a line each.

    Actions must be a bounded Box, Discrete or MultiDiscrete.
    """
    lines = settings.torso_problems(config, env) + from_data.problems(config, env, (Discrete, MultiDiscrete, Box))
    return lines + joint_actions.problems(env)


class Imitation(NamedTuple):
    """How the actor's outputs ``[..., outputs]`` are actions, and how far they are from others.

    - ``distance(out, obs, action)``: what is minimised, ``[N]``.
    - ``exploit(out, obs)``: the most likely action.
    - ``sample(out, obs, noise)``: an action that is drawn, with ``noise(key, shape)``; None: there is no distribution.
    """

    outputs: int
    distance: Callable[[Array, PyTree, Array], Array]
    exploit: Callable[[Array, PyTree], Array]
    sample: Callable[[Array, PyTree, Array], Array] | None = None
    noise: Callable[[Key, tuple[int, ...]], PyTree] = lambda key, shape: ()


def of_box(env: Env) -> Imitation:
    """Makes the imitation of actions in a box: the mean square over the dimensions, which are scaled to [-1, 1]."""
    to_box, to_unit = off_policy_gradients.units(env.action_space)

    def distance(out: Array, obs: PyTree, action: Array) -> Array:
        return jnp.mean(jnp.square(jnp.tanh(out) - to_unit(action)), axis=-1)

    return Imitation(math.prod(env.action_space.shape), distance, lambda out, obs: to_box(jnp.tanh(out)))


def of_discrete(env: Env) -> Imitation:
    """Makes the imitation of discrete actions: the cross-entropy of those that are legal."""
    actions = joint_actions.joint_actions(env)
    categorical = distributions.categorical(actions.num)

    def logits(out: Array, obs: PyTree) -> Array:
        return exploration.masked(out, actions.legal(obs))

    def distance(out: Array, obs: PyTree, action: Array) -> Array:
        return -categorical.log_prob(logits(out, obs), actions.number(action))

    exploit = lambda out, obs: actions.action(categorical.mode(logits(out, obs)))
    sample = lambda out, obs, noise: actions.action(categorical.sample(logits(out, obs), noise))
    return Imitation(actions.num, distance, exploit, sample, categorical.noise)


def make_imitation(env: Env) -> Imitation:
    """Makes the imitation that suits the actions of ``env``."""
    return of_box(env) if isinstance(env.action_space, Box) else of_discrete(env)


def make_network(config: BCConfig, env: Env) -> nn.Module:
    """Makes an actor of actions before their tanh, one number for each dimension, or of logits."""
    return Head(settings.make_torso(config, env), make_imitation(env).outputs, scale=0.01)


def make_learner(
    config: BCConfig, env: Env, *, network: nn.Module | None = None, **parts: Unpack[offline.OfflineParts]
) -> Learner:
    """Makes the `Learner` of behaviour cloning.

    Args:
        config: Settings of the algorithm.
        env: Environment whose play is learned from.
        network: A Flax Linen module from observations to what that of `make_network` gives; None: that one.
        **parts: ``optimiser``, in place of Adam.
    """
    imitation = make_imitation(env)
    network = given_or_own(network, make_network(config, env), env.observation_space)
    normalizer = normalize.running() if config.normalize_obs else normalize.identity()
    optimiser = parts.get("optimiser") or gradients.make_optimiser(config)
    act: Callable[[PyTree, PyTree], Array] = cast(Any, network.apply)

    def init(key: Key, obs: PyTree) -> BCState:
        params = network.init(key, obs)
        opt_state = gradients.init_optimiser(optimiser, params)
        return BCState(params, normalizer.init(trees.take(obs, 0)), opt_state, counters.of())

    def policy(state: BCState) -> OffPolicyGradientPolicy:
        return OffPolicyGradientPolicy(state.params, normalize.settled(state.obs_moments))

    def seen(policy: OffPolicyGradientPolicy, here: Situation) -> tuple[Array, PyTree]:
        obs = normalizer.apply(policy.obs_moments, here.obs)
        return act(policy.params, obs), obs

    def exploit(policy: OffPolicyGradientPolicy, here: Situation, key: Key) -> tuple[Array, PyTree]:
        return imitation.exploit(*seen(policy, here)), here.carry

    def sample(policy: OffPolicyGradientPolicy, here: Situation, key: Key) -> tuple[Array, PyTree]:
        noise = imitation.noise(key, (trees.length(here.obs),))
        return cast(Any, imitation.sample)(*seen(policy, here), noise), here.carry

    def loss(params: PyTree, sample: Sample) -> tuple[Array, Array]:
        each = imitation.distance(act(params, sample.items.obs), sample.items.obs, sample.items.action)
        return jnp.mean(sample.weight * each), each

    def update(state: BCState, sample: Sample, key: Key) -> Updated:
        obs = normalizer.apply(state.obs_moments, sample.items.obs)
        batch = sample._replace(items=sample.items._replace(obs=obs))
        step = gradients.gradient_step(loss, optimiser, state.params, state.opt_state, batch)
        params, opt_state, each, metrics = step
        after = BCState(params, state.obs_moments, opt_state, counters.increment(state.updates))
        return Updated(after, metrics, each)

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=lambda key, shape: (),
        behaviour=policy,
        explore=lambda policy, here, noise: (*exploit(policy, here, noise), ()),
        policy=policy,
        exploit=exploit,
        update=update,
        observe=offline.standardising(config.normalize_obs),
        sample=sample if imitation.sample else None,
    )


def make_trainer(config: BCConfig, env: Env, learner: Learner, data: Dataset | Held) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from ``data``, of which nothing bootstraps."""
    return from_data.make_trainer(config, env, learner, data, gamma=0.0)


bc: Algorithm[...] = Algorithm(  # ``make_trainer`` takes ``data`` beside the parts of the learner
    "bc",
    BCConfig,
    problems,
    make_learner,
    make_trainer,
    datasets=("data",),
    wrappers=(),
)
