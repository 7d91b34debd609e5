"""Independent Q-learning of a team: each agent learns its own action values from the team's reward.

Tan 1993, "Multi-agent reinforcement learning: independent versus cooperative agents", ICML; with deep networks as in
Rashid et al. 2018 (arXiv 1803.11485). Where each agent has a reward of its own, train ``dqn`` or ``r2d2``, whose rows
are agents.
"""

from typing import Unpack

from purerl.algos.algorithm import Algorithm
from purerl.learners.families import factored_values
from purerl.networks import mixers
from purerl.types import Env, Learner


def make_learner(
    config: factored_values.FactoredValueConfig, env: Env, **parts: Unpack[factored_values.FactoredValueParts]
) -> Learner:
    """Makes the `Learner` of a joint environment; the parts are those of `factored_values.make_learner`."""
    return factored_values.make_learner(config, env, mixers.apart(), **parts)


iql = Algorithm(
    "iql",
    factored_values.FactoredValueConfig,
    factored_values.problems,
    make_learner,
    factored_values.make_trainer,
    view=factored_values.view,
)
