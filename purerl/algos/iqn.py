"""IQN: quantiles of the return at any fraction (Dabney et al. 2018, arXiv 1806.06923, Algorithm 1)."""

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
from purerl.learners.families.action_values import ActionValueState, Batch, problems
from purerl.learners.parts import from_replay
from purerl.networks import value_networks
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(double=False)
class IQNConfig(from_replay.DemoSettings, action_values.ActionValueConfig):
    """Settings of IQN."""

    num_quantiles: cfg.Count = 16
    """Number of quantile fractions sampled per observation, for learning, for targets and for acting."""
    num_cosines: cfg.Count = 64
    """Number of cosine features that embed a quantile fraction."""
    kappa: cfg.Positive = 1.0
    """Magnitude of the TD error above which the quantile loss is linear instead of quadratic."""
    risk_level: Annotated[float, cfg.Range(0, 1, open_low=True, open_high=False)] = 1.0
    """Risk level of CVaR: actions maximise the mean of this fraction of the lowest returns. 1: the mean of all
    returns."""


def make_network(config: IQNConfig, env: Env) -> value_networks.ValueNetwork:
    """Makes a torso, an embedding of fractions, and each action's quantile at each of them."""
    return value_networks.implicit_quantile_network(
        **action_values.network_shape(config, env),
        num_quantiles=config.num_quantiles,
        num_cosines=config.num_cosines,
        level=config.risk_level,
    )


def make_learner(
    config: IQNConfig,
    env: Env,
    *,
    network: value_networks.ValueNetwork | nn.Module | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes IQN's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: Its output is the pair of quantiles ``[N, A, K]`` and their fractions ``[N, K]``; None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    agent = action_values.make_agent(config, env, network, optimiser, values=lambda out: jnp.mean(out[0], axis=-1))

    def loss(params: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        items = batch.items
        quantiles, fractions = agent.network.apply(params, items.obs, batch.noise)
        next_quantiles, _ = batch.next_target_out
        action = agent.actions.number(items.action)
        chooser = agent.selection_values(params, batch)
        of_each = functools.partial(td_errors.quantile_q_learning, kappa=config.kappa)
        each, error = jax.vmap(of_each)(
            quantiles, fractions, action, items.reward, items.discount, chooser, next_quantiles
        )
        return agent.weighted_mean(each, error, (quantiles, fractions), batch)

    def update(state: ActionValueState, sample: Sample, key: Key) -> Updated:
        return agent.step(loss, state, agent.batch(state, sample, key))

    return agent.learner(update)


iqn = Algorithm(
    "iqn",
    IQNConfig,
    problems,
    make_learner,
    action_values.make_trainer,
    datasets=("demos",),
    presets={"image": dqn.IMAGE},
)
