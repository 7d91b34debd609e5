"""Rainbow (Hessel et al. 2018, arXiv 1710.02298): C51 with double Q-learning, dueling streams, prioritised replay,
returns over several steps, and noisy layers in place of epsilon."""

from purerl import config as cfg
from purerl.algos import c51
from purerl.algos.algorithm import Algorithm
from purerl.learners.families import action_values
from purerl.types import Env, Learner


@cfg.config
class Config(c51.Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    double: bool = True
    """Choose the target's next action by the online network instead of the target network (double Q-learning)."""
    dueling: bool = True
    """Compute action values as the sum of a state value and advantages (dueling network)."""
    noisy: bool = True
    """Explore by learned noise on the weights of the last layers (noisy networks)."""
    prioritised: bool = True
    """Sample transitions in proportion to their priority instead of uniformly."""
    priority_exponent: cfg.Fraction = 0.5
    """Exponent (alpha) of the priority that a transition's probability is proportional to."""
    epsilon_start: cfg.Fraction = 0.0
    """Probability of a random action at the start of training, in addition to the noise."""
    epsilon_end: cfg.Fraction = 0.0
    """Probability of a random action once exploration_fraction of the training is over, in addition to the noise."""


def problems(config: Config, env: Env | None) -> list[str]:
    """Why ``config`` cannot train on ``env`` (None: not known), a line each. Actions must be Discrete."""
    found = c51.problems(config, env)
    if (
        not config.noisy
        and cfg.sound(config, "epsilon_start", "epsilon_end")
        and config.epsilon_start == config.epsilon_end == 0
    ):
        found.append("noisy = False: nothing explores, for epsilon_start and epsilon_end are 0")
    return found


def make_learner(config: Config, env: Env, *, network=None, optimiser=None) -> Learner:
    """Rainbow as a `Learner`; the parts are those of `c51.make_learner`."""
    network = network or c51.make_network(config, env, noisy=config.noisy)
    return c51.make_learner(config, env, network=network, optimiser=optimiser)


rainbow = Algorithm(
    "rainbow",
    Config,
    problems,
    make_learner,
    action_values.make_trainer,
)
