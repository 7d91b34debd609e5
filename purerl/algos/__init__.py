"""One module an algorithm. Each has ``Config``, ``problems``, ``make_learner``, ``make_trainer`` and ``make_train``."""

from purerl.algos import ppo

ALGORITHMS = {"ppo": ppo}
