"""ReBRAC: TD3 on recorded play, whose policy and critics are both penalised for actions that were not recorded.

Tarasov et al. 2023, "Revisiting the minimalist approach to offline reinforcement learning", arXiv 2305.09836:
TD3+BC whose penalty is decoupled (section 3). The squared distance to the recorded action has one weight in the actor's
loss, and that to the next recorded action another in the critics' target, as in BRAC (Wu et al. 2019, arXiv
1911.11361). Critics have layer normalisation, networks three layers, and batches are large.
"""

import dataclasses
from typing import Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import draw, replay, spaces
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration, td_errors
from purerl.learners.families import off_policy_gradients, offline
from purerl.learners.families.off_policy_gradients import Batch, OffPolicyGradientState
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.replay.fixed import Held
from purerl.replay.streamed import Streamed
from purerl.types import Array, Dataset, Env, Key, Learner, Metrics, Outcome, PyTree, Sample, Trainer, Updated


@cfg.config(policy_delay=2, batch_size=1024, learning_rate=1e-3, actor_learning_rate=1e-3, hidden_sizes=(256, 256, 256))
class ReBRACConfig(off_policy_gradients.TargetNoise, offline.OfflineConfig):
    """Settings of ReBRAC."""

    cloning: cfg.NonNegative = 0.01
    """Weight (beta_1) in the actor's loss of the squared distance of its action to the recorded one."""
    critic_cloning: cfg.NonNegative = 0.01
    """Weight (beta_2) in the critics' target of the squared distance of its action to the next recorded one."""
    critic_layer_norm: bool = True
    """Layer normalisation before each activation of the critics. That of the actor is layer_norm."""


def make_network(config: ReBRACConfig, env: Env) -> ActorAndCritics:
    """Makes an actor, whose outputs are actions before their tanh, and critics."""
    own = off_policy_gradients.networks_for_box(config, env, 1)
    normalised = dataclasses.replace(config, layer_norm=config.critic_layer_norm)
    return own._replace(critics=off_policy_gradients.networks_for_box(normalised, env, 1).critics)


def make_learner(
    config: ReBRACConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[offline.OfflineParts]
) -> Learner:
    """Makes ReBRAC's `Learner`. It learns from samples of `make_trainer`, which have the next recorded actions.

    Args:
        config: Settings of the algorithm.
        env: Environment whose play is learned from.
        network: A `critics.ActorAndCritics` for a box; None: `make_network`.
        **parts: ``optimiser``, in place of Adam.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    act, acting = offline.box_actor(env, network)
    _, to_unit = off_policy_gradients.units(env.action_space)
    agent = offline.make_agent(config, acting, ("actor", "critic"), **parts)

    def distance(action: Array, recorded: Array) -> Array:
        return jnp.sum(jnp.square(action - to_unit(recorded)), axis=-1)

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        return agent.critic_loss(network.q_values(critic, batch.obs, to_unit(batch.action)), batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        action = act(params["actor"], batch.obs)
        q = td_errors.least(network.q_values(critic, batch.obs, action))
        far = distance(action, batch.action)
        size = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
        each = config.cloning * far - q / jnp.maximum(size, 1e-8)
        return jnp.mean(batch.weight * each), {"distance": jnp.mean(batch.weight * far)}

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        items: Outcome = sample.items
        batch = agent.batch(state, sample, ())
        action = act(state.target_params["actor"], batch.next_obs)
        noise = draw.normal(key, action.shape)
        action = exploration.disturbed(action, noise, config.target_noise, config.target_noise_clip)
        next_q = td_errors.least(network.q_values(state.target_params["critic"], batch.next_obs, action))
        following = items.next_extras["action"]
        far = jnp.where(items.extras["cut"], 0.0, distance(action, following))  # nobody acted after a cut
        batch = agent.with_target(batch, next_q - config.critic_cloning * far)
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return offline.make_learner(config, agent, network.init, update)


def make_trainer(config: ReBRACConfig, env: Env, learner: Learner, data: Dataset | Held) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from ``data``, whose samples have the next recorded actions."""
    play = data if isinstance(data, Streamed) else replay.held(data, spaces.frames(env.observation_space))
    known = lambda rows: rows._replace(extras={"action": rows.action, "cut": rows.truncated})
    return offline.make_trainer(config, env, learner, play.changed(known))


rebrac: Algorithm[...] = Algorithm(  # ``make_trainer`` takes ``data`` beside the parts of the learner
    "rebrac",
    ReBRACConfig,
    offline.problems,
    make_learner,
    make_trainer,
    datasets=("data",),
    wrappers=(),
)
