"""Levels that are chosen for an agent: nothing is put around its learner; the loop is another."""

from purerl.learners.parts import settings, teaching
from purerl.learners.wrappers.wrapper import Wrapper

curriculum = Wrapper(
    "curriculum",
    teaching.Settings,
    "curriculum",
    teaching.OFF,
    wrap=lambda config, env, learner: learner,
    problems=teaching.problems,
    needs=(settings.ON_POLICY, settings.EVERY_DECISION),
)
