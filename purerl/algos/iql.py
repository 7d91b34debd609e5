"""Independent Q-learning of a team: each agent learns its own action values from the team's reward.

Tan 1993, "Multi-agent reinforcement learning: independent versus cooperative agents", ICML; with deep networks as in
Rashid et al. 2018 (arXiv 1803.11485). Where each agent has a reward of its own, train ``dqn`` or ``r2d2``, whose rows
are agents.
"""

from typing import Unpack

from purerl.algos import qmix
from purerl.algos.algorithm import Algorithm
from purerl.networks import mixers
from purerl.types import Env, Learner


def make_learner(config: qmix.TeamConfig, env: Env, **parts: Unpack[qmix.TeamParts]) -> Learner:
    """Makes the `Learner` of a joint environment; the parts are those of `qmix.make_team_learner`."""
    return qmix.make_team_learner(config, env, mixers.apart(), **parts)


iql = Algorithm(
    "iql",
    qmix.TeamConfig,
    qmix.problems,
    make_learner,
    qmix.make_trainer,
    view=qmix.view,
)
