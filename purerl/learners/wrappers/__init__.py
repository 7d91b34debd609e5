"""Wrappers of any learner: one file for each, and `TABLE` of all of them."""

from purerl.learners.wrappers.intrinsic import intrinsic
from purerl.learners.wrappers.league import league
from purerl.learners.wrappers.past import past
from purerl.learners.wrappers.reference import reference
from purerl.learners.wrappers.wrapper import Wrapper, inside

__all__ = ["TABLE", "Wrapper", "inside"]

TABLE = (intrinsic, reference, past, league)
"""All wrappers in the order in which they are put around a learner: the first is the innermost. So a bonus is added
to the rewards that one learner sees, and games are won and lost by those of the environment."""
