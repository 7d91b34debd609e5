"""Independent Q-learning of a team (Tan 1993, "Multi-agent reinforcement learning: independent versus cooperative
agents", ICML): each agent learns its own action values from the team's reward, with deep networks as in Rashid et al.
2018 (arXiv 1803.11485). For rewards of each agent's own, train ``dqn`` or ``r2d2``, whose rows are agents."""

from typing import Any

from purerl.algos.algorithm import Algorithm
from purerl.learners.families import factored_values
from purerl.networks import mixers
from purerl.types import Env, Learner


def make_learner(config: factored_values.Config, env: Env, **parts: Any) -> Learner:
    """As a `Learner` of a joint environment; the parts are those of `factored_values.make_learner`."""
    return factored_values.make_learner(config, env, mixers.apart(), **parts)


iql = Algorithm(
    "iql",
    factored_values.Config,
    factored_values.problems,
    make_learner,
    factored_values.make_trainer,
    view=factored_values.view,
)
