"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018, arXiv 1802.09477).

DDPG with three changes: the smaller of two critics in the target, the actor updated less often, and targets at actions
that are slightly disturbed.
"""

from typing import Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import ddpg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Batch, CriticParts, OffPolicyGradientState
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config(num_critics=2, policy_delay=2, noise_deviation=0.1)
class TD3Config(off_policy_gradients.TargetNoise, ddpg.DDPGConfig):
    """Settings of TD3."""


def make_learner(
    config: TD3Config, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes TD3's `Learner`; the parts are those of `ddpg.make_learner`."""
    network = given_or_own(network, ddpg.make_network(config, env), env.observation_space)
    policy = ddpg.box_policy(config, env, network)
    family = off_policy_gradients.family_of(config)
    agent = off_policy_gradients.make_agent(
        config, policy.acting, target_networks=("actor", "critic"), tau=config.tau, family=family, **parts
    )

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        q = network.q_values(critic, batch.obs, policy.executed(batch.action), dropout=batch.dropout.critic)
        return agent.critic_loss(q, batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        q = policy.q_values(critic, batch.obs, policy.act(params["actor"], batch.obs), batch.dropout.actor)
        value = agent.values(q)[..., 0]
        return jnp.mean(batch.weight * -value), {}

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        dropout = off_policy_gradients.dropout(config, key)
        key_next, key_actor = jax.random.split(key)
        batch = agent.batch(state, sample, policy.acting.noise(key_actor, sample.weight.shape), dropout)
        noise = policy.acting.noise(key_next, sample.weight.shape).normal
        action = policy.act(state.target_params["actor"], batch.next_obs)
        action = exploration.disturbed(action, noise, config.target_noise, config.target_noise_clip)
        next_q = policy.q_values(state.target_params["critic"], batch.next_obs, action, dropout.target)
        batch = agent.with_target(batch, *agent.least(next_q))
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return agent.learner(network.init, update)


FAST_GPU = {
    "total_steps": 102_400_000,
    "num_envs": 1_024,
    "num_steps": 1,
    "num_updates": 2,
    "batch_size": 32_768,
    "capacity": 10_240 * 1_024,
    "warmup_steps": 10 * 1_024,
    "gamma": 0.97,
    "tau": 0.19,
    "learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "weight_decay": 0.1,
    "noise_deviation": 0.001,
    "noise_deviation_max": 0.4,
    "target_noise": 0.001,
    "critic": "categorical",
    "num_atoms": 101,
    "normalize_obs": True,
    "hidden_sizes": (512, 256, 128),
    "critic_hidden_sizes": (1024, 512, 256),
}
"""FastTD3's settings for MuJoCo Playground (Seo et al. 2025, arXiv 2505.22642; github.com/younggyoseo/FastTD3,
fast_td3/hyperparams.py). There targets follow by 0.1 at each update, here by as much at every second: 1 - 0.9^2."""
FAST = {
    **FAST_GPU,
    "total_steps": 3_000_000,
    "num_envs": 256,
    "batch_size": 2_048,
    "capacity": 4_096 * 256,
    "warmup_steps": 10 * 256,
    "n_step": 3,
    "hidden_sizes": (128, 128),
    "critic_hidden_sizes": (256, 128),
}
"""The same in sizes for two cores of a CPU, with returns over the three steps that FastTD3 has for walking robots."""


td3 = Algorithm(
    "td3",
    TD3Config,
    ddpg.problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={"mujoco": ddpg.MUJOCO, "fast": FAST, "fast-gpu": FAST_GPU},
)
