"""One module an algorithm. Each has ``Config``, ``problems``, ``make_learner``, ``make_trainer`` and ``make_train``."""

from purerl.algos import dqn, ppo

ALGORITHMS = {"ppo": ppo, "dqn": dqn}
