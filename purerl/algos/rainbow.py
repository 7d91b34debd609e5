"""Rainbow (Hessel et al. 2018, arXiv 1710.02298): six extensions of DQN in one algorithm.

It is C51 with double Q-learning, dueling streams, prioritised replay, returns over several steps, and noisy layers in
place of epsilon.
"""

import optax
from flax import linen as nn

from purerl import config as cfg
from purerl.algos import c51, dqn
from purerl.algos.algorithm import Algorithm
from purerl.learners.families import action_values
from purerl.networks import value_networks
from purerl.networks.given import Fitting, given_or_own
from purerl.types import Env, Learner


@cfg.config(double=True, dueling=True, prioritised=True, priority_exponent=0.5, epsilon_start=0.0, epsilon_end=0.0)
class RainbowConfig(c51.C51Config):
    """Settings of Rainbow. An epsilon would add to the noise."""

    noisy: bool = True
    """Noisy networks: explore by learned noise on the weights of the last layers."""


def problems(config: RainbowConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    problems = c51.problems(config, env)
    start, end = config.epsilon_start, config.epsilon_end
    if not config.noisy and cfg.known(start, end) and start == end == 0:
        problems.append("noisy = False: needs epsilon_start or epsilon_end above 0, or nothing explores")
    return problems


def make_learner(
    config: RainbowConfig,
    env: Env,
    *,
    network: value_networks.ValueNetwork | nn.Module | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes Rainbow's `Learner`; the parts are those of `c51.make_learner`."""
    own = c51.make_network(config, env, noisy=config.noisy)
    network = given_or_own(network, own, env.observation_space)
    return c51.make_learner(config, env, network=Fitting(network), optimiser=optimiser)


rainbow = Algorithm(
    "rainbow",
    RainbowConfig,
    problems,
    make_learner,
    action_values.make_trainer,
    datasets=("demos",),
    presets={"image": {**dqn.IMAGE, "epsilon_end": 0.0}},
)
