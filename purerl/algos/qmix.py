"""QMIX (Rashid et al. 2018, arXiv 1803.11485): a team's value is a monotonic function of its agents' action values.

The function's weights depend on the state. Because it is monotonic, the agents' greedy actions together are the team's
greedy action.
"""

from typing import Unpack

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.learners.families import factored_values
from purerl.networks import mixers
from purerl.types import Env, Learner


@cfg.config
class QMIXConfig(factored_values.FactoredValueConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    mixer_size: cfg.Count = 32
    """Width of the hidden layer of the mixer."""
    hyper_size: cfg.NonNegativeCount = 64
    """Width of the hidden layer of the networks that compute the mixer's weights. 0: no hidden layer."""


def make_learner(config: QMIXConfig, env: Env, **parts: Unpack[factored_values.FactoredValueParts]) -> Learner:
    """Makes the `Learner` of a joint environment; the parts are those of `factored_values.make_learner`."""
    return factored_values.make_learner(config, env, mixers.monotonic(config.mixer_size, config.hyper_size), **parts)


qmix = Algorithm(
    "qmix",
    QMIXConfig,
    factored_values.problems,
    make_learner,
    factored_values.make_trainer,
    view=factored_values.view,
)
