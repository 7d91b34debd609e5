"""C51: categorical distributions of the return (Bellemare et al. 2017, arXiv 1707.06887, Algorithm 1)."""

import functools
from typing import Annotated

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl.algos import dqn
from purerl.algos.algorithm import Algorithm
from purerl.formulas import td_errors
from purerl.learners.families import action_values
from purerl.learners.families.action_values import ActionValueState, Batch
from purerl.learners.parts import from_replay, settings
from purerl.networks import value_networks
from purerl.networks.given import Fitting, given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(double=False)
class C51Config(from_replay.DemoSettings, action_values.ActionValueConfig):
    """Settings of C51."""

    num_atoms: Annotated[int, cfg.Range(2)] = 51
    """Number of atoms of the return's distribution, evenly spaced from v_min to v_max."""
    v_min: float = -10.0
    """Return at the lowest atom; lower returns are clipped to it."""
    v_max: float = 10.0
    """Return at the highest atom; higher returns are clipped to it."""


def problems(config: C51Config, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    return action_values.problems(config, env) + settings.support_problems(config.v_min, config.v_max)


def make_network(config: C51Config, env: Env, *, noisy: bool = False) -> value_networks.ValueNetwork:
    """Makes a torso, and the logits of a distribution of the return for each action."""
    return value_networks.q_network(**action_values.network_shape(config, env), num_atoms=config.num_atoms, noisy=noisy)


def make_learner(
    config: C51Config,
    env: Env,
    *,
    network: value_networks.ValueNetwork | nn.Module | Fitting | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes C51's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `value_networks.ValueNetwork` whose output is ``[N, A, num_atoms]``; None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    support = td_errors.support(config.v_min, config.v_max, config.num_atoms)

    def mean(logits):
        return jnp.sum(jax.nn.softmax(logits) * jnp.broadcast_to(support, logits.shape), axis=-1)

    network = given_or_own(network, make_network(config, env), env.observation_space)
    agent = action_values.make_agent(config, env, network, optimiser, values=mean)

    def loss(params: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        items = batch.items
        logits = agent.network.apply(params, items.obs, batch.noise)
        action = agent.actions.number(items.action)
        chooser = agent.selection_values(params, batch)
        of_each = functools.partial(td_errors.categorical_q_learning, support=support)
        each, error = jax.vmap(of_each)(logits, action, items.reward, items.discount, chooser, batch.next_target_out)
        return agent.weighted_mean(each, error, logits, batch)

    def update(state: ActionValueState, sample: Sample, key: Key) -> Updated:
        return agent.step(loss, state, agent.batch(state, sample, key))

    return agent.learner(update)


c51 = Algorithm(
    "c51",
    C51Config,
    problems,
    make_learner,
    action_values.make_trainer,
    datasets=("demos",),
    presets={"image": dqn.IMAGE},
)
