"""Value decomposition networks (Sunehag et al. 2017, arXiv 1706.05296): the sum of action values for a team.

The value of a joint action is the sum of the agents' action values.
"""

from typing import Unpack

from purerl.algos import qmix
from purerl.algos.algorithm import Algorithm
from purerl.networks import mixers
from purerl.types import Env, Learner


def make_learner(config: qmix.TeamConfig, env: Env, **parts: Unpack[qmix.TeamParts]) -> Learner:
    """Makes the `Learner` of a joint environment; the parts are those of `qmix.make_team_learner`."""
    return qmix.make_team_learner(config, env, mixers.summed(), **parts)


vdn = Algorithm(
    "vdn",
    qmix.TeamConfig,
    qmix.problems,
    make_learner,
    qmix.make_trainer,
    view=qmix.view,
)
