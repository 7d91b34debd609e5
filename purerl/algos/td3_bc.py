"""TD3+BC: TD3 on recorded play, with a policy that also stays near to the recorded actions.

Fujimoto & Gu 2021, "A minimalist approach to offline reinforcement learning", arXiv 2106.06860: TD3 (section 4), whose
actor's loss gains the squared distance to the recorded action (eq. 3), and whose values are divided by their mean size,
so that the distance weighs the same whatever the rewards are (eq. 5).
"""

from typing import Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import draw
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration
from purerl.learners.families import off_policy_gradients, offline
from purerl.learners.families.off_policy_gradients import Batch, OffPolicyGradientState
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(policy_delay=2, normalize_obs=True)
class TD3BCConfig(off_policy_gradients.TargetNoise, offline.OfflineConfig):
    """Settings of TD3+BC."""

    q_weight: cfg.NonNegative = 2.5
    """Weight (alpha) of the value of the policy's action, divided by the mean size of the values of a batch."""
    cloning: cfg.NonNegative = 1.0
    """Weight of the squared distance of the policy's action to the recorded one. 0: TD3 alone."""


def make_network(config: offline.OfflineConfig, env: Env) -> ActorAndCritics:
    """Makes an actor, whose outputs are actions before their tanh, and critics."""
    return off_policy_gradients.networks_for_box(config, env, 1)


def make_learner(
    config: TD3BCConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[offline.OfflineParts]
) -> Learner:
    """Makes TD3+BC's `Learner`.

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

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        return agent.critic_loss(network.q_values(critic, batch.obs, to_unit(batch.action)), batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        action = act(params["actor"], batch.obs)
        q = network.q_values(critic, batch.obs, action)[..., 0]
        distance = jnp.mean(jnp.square(action - to_unit(batch.action)), axis=-1)
        size = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
        each = config.cloning * distance - config.q_weight * q / jnp.maximum(size, 1e-8)
        return jnp.mean(batch.weight * each), {"distance": jnp.mean(batch.weight * distance)}

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        batch = agent.batch(state, sample, ())
        action = act(state.target_params["actor"], batch.next_obs)
        noise = draw.normal(key, action.shape)
        action = exploration.disturbed(action, noise, config.target_noise, config.target_noise_clip)
        next_q = network.q_values(state.target_params["critic"], batch.next_obs, action)
        batch = agent.with_target(batch, *agent.least(next_q))
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return offline.make_learner(config, agent, network.init, update)


td3_bc: Algorithm[...] = Algorithm(  # ``make_trainer`` takes ``data`` beside the parts of the learner
    "td3-bc",
    TD3BCConfig,
    offline.problems,
    make_learner,
    offline.make_trainer,
    datasets=("data",),
    wrappers=(),
)
