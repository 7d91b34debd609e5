"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018, arXiv 1802.09477).

DDPG with three changes: the smaller of two critics in the target, the actor updated less often, and targets at actions
that are slightly disturbed.
"""

from typing import Unpack

import jax.numpy as jnp

from purerl import config as cfg
from purerl.algos import ddpg
from purerl.algos.algorithm import Algorithm
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import CriticParts, problems
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Learner


@cfg.config(num_critics=2, policy_delay=2, noise_deviation=0.1)
class TD3Config(ddpg.DDPGConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    target_noise: cfg.NonNegative = 0.2
    """Standard deviation of the noise on target actions, for actions scaled to [-1, 1]."""
    target_noise_clip: cfg.NonNegative = 0.5
    """Upper clip of the magnitude of the noise on target actions."""


def make_learner(
    config: TD3Config, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes TD3's `Learner`; the parts are those of `ddpg.make_learner`."""

    def smooth(action: Array, noise: Array) -> Array:
        """Adds clipped noise to the actions of targets (section 5.3, eq. 14)."""
        noise = jnp.clip(config.target_noise * noise, -config.target_noise_clip, config.target_noise_clip)
        return jnp.clip(action + noise, -1.0, 1.0)

    network = given_or_own(network, ddpg.make_network(config, env), env.observation_space)
    method = ddpg.make_method(config, env, network, smooth)
    return off_policy_gradients.make_learner(config, env, method, **parts)


td3 = Algorithm(
    "td3",
    TD3Config,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    sockets=("td-loss", "optimiser"),
    presets={"mujoco": off_policy_gradients.MUJOCO},
)
