"""R2D3: R2D2 with demonstrations beside its replay.

Paine et al. 2019, "Making efficient use of demonstrations to solve hard exploration problems", arXiv 1909.01387,
section 3.

Each sequence of a batch comes from the demonstrations with probability ``demo_ratio``. Demonstrations never expire, and
have priorities of their own. They are learned from like all other experience: there is no loss of imitation and no
margin.

Sequences of demonstrations begin with a carry of zeros, because the demonstrator had another network or none, and the
burn-in warms it up. The first sequence of each episode begins with the episode, where zeros are the carry.
"""

from purerl import config as cfg
from purerl import replay
from purerl.algos import r2d2
from purerl.algos.algorithm import Algorithm
from purerl.algos.r2d2 import problems
from purerl.learners.parts import from_replay
from purerl.replay.fixed import Stored
from purerl.types import Dataset, Env, Learner, Trainer


@cfg.config(demo_ratio=1 / 16)
class R2D3Config(from_replay.DemoSettings, r2d2.R2D2Config):
    """Settings of R2D3. Paine et al. report a ``demo_ratio`` of 1/256 as best, with batches of 64 and 256 actors."""


def make_trainer(config: R2D3Config, env: Env, learner: Learner, demos: Dataset | Stored) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from its own sequences and from those of ``demos``."""
    view = replay.sequences(config.sample_rows, config.period)
    return from_replay.make_trainer(config, env, learner, view=view, demos=demos)


r2d3: Algorithm[...] = Algorithm(  # ``make_trainer`` takes ``demos`` beside the parts of the learner
    "r2d3",
    R2D3Config,
    problems,
    r2d2.make_learner,
    make_trainer,
    datasets=("demos",),
)
