"""QR-DQN: quantiles of the return (Dabney et al. 2018, arXiv 1710.10044, Algorithm 1)."""

import functools

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
class QRDQNConfig(from_replay.DemoSettings, action_values.ActionValueConfig):
    """Settings of QR-DQN."""

    num_quantiles: cfg.Count = 50
    """Number of quantiles of the return to learn, at the midpoints of equal parts of [0, 1]."""
    kappa: cfg.Positive = 1.0
    """Magnitude of the TD error above which the quantile loss is linear instead of quadratic."""


def make_network(config: QRDQNConfig, env: Env) -> value_networks.ValueNetwork:
    """Makes a torso and the quantiles of each action."""
    return value_networks.q_network(**action_values.network_shape(config, env), num_atoms=config.num_quantiles)


def make_learner(
    config: QRDQNConfig,
    env: Env,
    *,
    network: value_networks.ValueNetwork | nn.Module | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes QR-DQN's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `value_networks.ValueNetwork` whose output is ``[N, A, num_quantiles]``; None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    midpoints = (jnp.arange(config.num_quantiles) + 0.5) / config.num_quantiles

    network = given_or_own(network, make_network(config, env), env.observation_space)
    agent = action_values.make_agent(
        config, env, network, optimiser, values=lambda quantiles: jnp.mean(quantiles, axis=-1)
    )

    def loss(params: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        items = batch.items
        quantiles = agent.network.apply(params, items.obs, batch.noise)
        action = agent.actions.number(items.action)
        chooser = agent.selection_values(params, batch)
        fractions = jnp.broadcast_to(midpoints, (len(action), config.num_quantiles))
        of_each = functools.partial(td_errors.quantile_q_learning, kappa=config.kappa)
        each, error = jax.vmap(of_each)(
            quantiles, fractions, action, items.reward, items.discount, chooser, batch.next_target_out
        )
        return agent.weighted_mean(each, error, quantiles, batch)

    def update(state: ActionValueState, sample: Sample, key: Key) -> Updated:
        return agent.step(loss, state, agent.batch(state, sample, key))

    return agent.learner(update)


qr_dqn = Algorithm(
    "qr-dqn",
    QRDQNConfig,
    problems,
    make_learner,
    action_values.make_trainer,
    datasets=("demos",),
    presets={"image": dqn.IMAGE},
)
