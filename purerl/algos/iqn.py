"""IQN: quantiles of the return at any fraction (Dabney et al. 2018, arXiv 1806.06923, Algorithm 1)."""

from typing import Annotated

import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import td_errors
from purerl.learners.families import action_values
from purerl.learners.families.action_values import problems
from purerl.networks import value_networks
from purerl.networks.given import given_or_own
from purerl.types import Env, Learner


@cfg.config(double=False)
class IQNConfig(action_values.ActionValueConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

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

    def loss(out, target_out, action, reward, discount, chooser, next_out):
        (quantiles, fractions), (next_quantiles, _) = out, next_out
        return td_errors.quantile_q_learning(
            quantiles, fractions, action, reward, discount, chooser, next_quantiles, config.kappa
        )

    values = action_values.Values(mean=lambda out: jnp.mean(out[0], axis=-1), loss=loss)
    network = given_or_own(network, make_network(config, env), env.observation_space)
    return action_values.make_learner(config, env, network, values, optimiser)


iqn = Algorithm(
    "iqn",
    IQNConfig,
    problems,
    make_learner,
    action_values.make_trainer,
    presets={"image": action_values.IMAGE},
)
