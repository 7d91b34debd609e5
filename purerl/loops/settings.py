"""Settings of every training loop."""

from typing import TYPE_CHECKING, ClassVar

from purerl import config as cfg


@cfg.config
class Loop:
    """Settings of every training loop. Those of an algorithm extend it and say how many iterations there are."""

    heading: ClassVar[str] = "loop"
    total_steps: cfg.Frames = 500_000
    """Environment steps of the whole training of one agent, rounded down to whole iterations."""
    num_envs: cfg.Count = 4
    """Number of environments that run in parallel."""
    num_steps: cfg.Count = 128
    """Steps of each environment in one iteration."""
    gamma: cfg.Fraction = 0.99
    """Discount factor per step."""

    if TYPE_CHECKING:

        @property
        def num_iterations(self) -> int:
            """Number of iterations of the whole training, which those that extend it know."""
