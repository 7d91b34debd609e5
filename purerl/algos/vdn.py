"""Value decomposition networks (Sunehag et al. 2017, arXiv 1706.05296): the sum of action values for a team.

The value of a joint action is the sum of the agents' action values.
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
    return factored_values.make_learner(config, env, mixers.summed(), **parts)


vdn = Algorithm(
    "vdn",
    factored_values.FactoredValueConfig,
    factored_values.problems,
    make_learner,
    factored_values.make_trainer,
    view=factored_values.view,
)
