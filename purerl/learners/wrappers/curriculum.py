"""The settings of curricula as a wrapper, which leaves the learner as it is: the loop is another."""

from purerl.learners.parts import settings, teaching
from purerl.learners.wrappers.wrapper import Wrapper

curriculum = Wrapper(
    "curriculum",
    teaching.TeachingSettings,
    "curriculum",
    teaching.OFF,
    wrap=lambda config, env, learner: learner,
    problems=teaching.problems,
    needs=(settings.ON_POLICY, settings.EVERY_DECISION),
)
