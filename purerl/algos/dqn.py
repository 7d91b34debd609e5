"""Deep Q-learning (Mnih et al. 2015, Nature 518) with double Q-learning's target (van Hasselt et al. 2016)."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import jax
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import td_errors
from purerl.learners.families import action_values
from purerl.learners.families.action_values import ActionValueState, Batch
from purerl.learners.parts import from_replay
from purerl.learners.parts.joint_actions import joint_actions
from purerl.networks import value_networks
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated

TD_ERRORS = {"q_learning": td_errors.q_learning, "munchausen": td_errors.munchausen}


@cfg.config
class DQNConfig(from_replay.DemoSettings, action_values.ActionValueConfig):
    """Settings of DQN."""

    double: Annotated[bool, cfg.Needs("td_error = 'q_learning'", lambda config: config.td_error == "q_learning")] = True
    """Double Q-learning: choose the target's next action by the online network instead of the target network."""
    td_error: Literal["q_learning", "munchausen"] = "q_learning"
    """Formula of the TD error; munchausen (Vieillard et al. 2020) needs n_step 1 and does not use double."""
    huber_delta: cfg.Positive = 10.0
    """Magnitude of the TD error above which the Huber loss is linear instead of quadratic."""


def problems(config: DQNConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    problems = action_values.problems(config, env)
    if config.td_error == "munchausen" and config.n_step > 1:
        problems.append(
            f"n_step = {config.n_step}: must be 1 with td_error = 'munchausen', which adds a bonus at every step"
        )
    return problems


def make_network(config: DQNConfig, env: Env) -> value_networks.ValueNetwork:
    """Makes a torso and a value for each action."""
    return value_networks.q_network(**action_values.network_shape(config, env))


class DQNParts(TypedDict, total=False):
    """Parts of DQN: arguments of `make_learner`."""

    network: value_networks.ValueNetwork | nn.Module | None
    td_error: Callable[..., Array] | None
    td_loss: Callable[[Array, Any], Array]
    optimiser: optax.GradientTransformation | None


def make_learner(
    config: DQNConfig,
    env: Env,
    *,
    network: value_networks.ValueNetwork | nn.Module | None = None,
    td_error: Callable[..., Array] | None = None,
    td_loss: Callable[[Array, Any], Array] = td_errors.huber_loss,
    optimiser: optax.GradientTransformation | None = None,
    record: Callable[[Array, Array], PyTree] = action_values.nothing,
) -> Learner:
    """Makes DQN's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `value_networks.ValueNetwork` whose output is ``[N, A]``; None: `make_network`.
        td_error: A function with the arguments of `td_errors.q_learning`, which lets no gradient through its target;
            None: the one that ``config`` names.
        td_loss: ``td_loss(error, config)``, elementwise.
        optimiser: An optax transformation; None: the one that ``config`` describes.
        record: Gives the extras of acting (`action_values.QAgent`).
    """
    error_of = td_error or TD_ERRORS[config.td_error]
    network = given_or_own(network, make_network(config, env), env.observation_space)
    if env.legal:
        network = value_networks.legal_only(network, joint_actions(env).legal)
    agent = action_values.make_agent(config, env, network, optimiser, record=record)

    def loss(params: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        items = batch.items
        q = agent.network.apply(params, items.obs, batch.noise)  # [N, A]
        target_q = agent.network.apply(batch.target_params, items.obs, batch.target_noise)  # read by Munchausen's alone
        action = agent.actions.number(items.action)
        chooser = agent.selection_values(params, batch)  # [N, A] at the next observations
        error = jax.vmap(error_of)(q, target_q, action, items.reward, items.discount, chooser, batch.next_target_out)
        each = td_loss(error, config)
        return agent.weighted_mean(each, error, q, batch)  # the loss; priorities by the errors, and metrics

    def update(state: ActionValueState, sample: Sample, key: Key) -> Updated:
        batch = agent.batch(state, sample, key)
        return agent.step(loss, state, batch)  # one gradient step, and at times a new target network

    return agent.learner(update)


IMAGE = {
    "total_steps": 3_200_000,
    "num_updates": 16,
    "batch_size": 32,
    "n_step": 3,
    "learning_rate": 2.5e-4,
    "target_period": 1_000,
    "epsilon_end": 0.02,
    "hidden_sizes": (128,),
}
"""Settings for images: more and smaller steps, tuned on Breakout of MinAtar."""


dqn = Algorithm(
    "dqn",
    DQNConfig,
    problems,
    make_learner,
    action_values.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={"image": IMAGE},
)
