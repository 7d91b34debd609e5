"""CrossQ (Bhatt et al. 2024, arXiv 1902.05605): SAC without target networks, with batch renormalisation.

The critics see the actions that were taken and those that follow in one batch, so that both are normalised by the
statistics of the same mixture. That keeps learning stable without slowly moving copies, with one update a step.
"""

import math
from typing import Any, ClassVar, Unpack

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import networks, spaces
from purerl.algos import sac
from purerl.algos.algorithm import Algorithm
from purerl.algos.ddpg import MUJOCO
from purerl.formulas import soft
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Batch, CriticParts, OffPolicyGradientState
from purerl.learners.parts import settings
from purerl.networks import critics, torsos
from purerl.networks.batch_renorm import STATISTICS, RenormMLP
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(policy_delay=3, critic_hidden_sizes=(256, 256))
class CrossQConfig(off_policy_gradients.ReplayedCriticsConfig, sac.Temperature):
    """Settings of CrossQ."""

    adam_b1: ClassVar[float] = 0.5
    renorm_warmup: cfg.NonNegativeCount = 100_000
    """Number of updates with plain batch normalisation, before it is corrected towards the running statistics."""
    huber_delta: cfg.Positive = 1e4
    """Magnitude of the TD error above which the critics' loss is linear instead of quadratic."""


def problems(config: CrossQConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be those of a bounded Box, and only torsos of images have layer normalisation.
    """
    own = ": crossq has dense layers with batch renormalisation"
    lines = [f"torso = 'simba'{own}"] if config.torso == "simba" else []
    if config.layer_norm and env is not None and not any(map(torsos.is_image, spaces.leaves(env.observation_space))):
        lines.append(f"layer_norm = True{own}")
    return off_policy_gradients.problems(config, env) + lines


def make_network(config: CrossQConfig, env: Env) -> ActorAndCritics:
    """Makes SAC's actor and critics, with batch renormalisation around their dense layers."""
    size = math.prod(env.action_space.shape)
    activation = networks.ACTIVATIONS[config.activation]
    features = settings.make_torso(config, env, ())
    torso = nn.Sequential([features, RenormMLP(config.hidden_sizes, activation, config.renorm_warmup)])
    joint = RenormMLP(config.critic_sizes, activation, config.renorm_warmup)
    return critics.for_box(size, 2 * size, config.num_critics, torso, features, joint)


def by_batch(module: nn.Module, params: PyTree, *inputs: PyTree) -> tuple[Array, PyTree]:
    """Applies a network by the statistics of the batch; returns the output, and ``params`` with new running ones."""
    made: Any = module.apply(params, *inputs, mutable=[STATISTICS])
    out, moved = made
    return out, {**params, **moved}


def make_learner(
    config: CrossQConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes CrossQ's `Learner`; the parts are those of `sac.make_learner`, and networks have running statistics."""
    network = given_or_own(network, make_network(config, env), env.observation_space)
    policy = sac.squashed_policy(config, env, network)  # acts by running statistics
    agent = off_policy_gradients.make_agent(config, policy.acting, **parts)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        out, actor = by_batch(network.actor, params["actor"], batch.obs)
        action, log_prob = policy.sample(out, batch.noise)
        q = network.q_values(critic, batch.obs, action)  # by running statistics
        value = soft.soft_value(q, log_prob, sac.temperature(params))
        each, metrics = sac.with_temperature(config, params, -value, -log_prob, policy.target_entropy)
        moved: Any = {**params, "actor": actor}
        return jnp.mean(batch.weight * each), {**metrics, STATISTICS: moved}

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        key_next, key_actor = jax.random.split(key)
        size = sample.weight.shape
        batch = agent.batch(state, sample, policy.acting.noise(key_actor, size))
        noise = policy.acting.noise(key_next, size)
        next_action, log_prob = policy.draw(state.params["actor"], batch.next_obs, noise)

        def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
            """Values both halves of a joint batch ``[2N]``: what was done, and what follows, the target (figure 1)."""
            both = batch.obs, policy.executed(batch.action)
            after = batch.next_obs, next_action
            obs, action = jax.tree.map(lambda *halves: jnp.concatenate(halves), both, after)
            joint, critic = by_batch(network.critics, critic, obs, action)
            q, next_q = jnp.split(joint, 2)
            next_value = soft.soft_value(next_q, log_prob, sac.temperature(state.params))
            loss, (priority, metrics) = agent.critic_loss(q, agent.with_target(batch, next_value))
            return loss, (priority, {**metrics, STATISTICS: critic})

        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return agent.learner(lambda key, obs: sac.init_params(config, network, key, obs), update, kept=sac.kept(config))


crossq = Algorithm(
    "crossq",
    CrossQConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={
        "mujoco": {**MUJOCO, "learning_rate": 1e-3, "actor_learning_rate": 1e-3, "critic_hidden_sizes": (2048, 2048)}
    },
)
