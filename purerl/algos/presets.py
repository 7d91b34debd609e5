"""Presets for the kinds of task that the defaults do not suit, and which of them fits an environment.

Defaults are for observations that are vectors and for discrete actions; those of `off_policy_gradients` are for few
continuous actions. An algorithm that has settings for another kind of task gives them one of these names.
"""

from purerl import spaces
from purerl.algos.algorithm import Algorithm
from purerl.loops.settings import Loop
from purerl.networks.torsos import is_image
from purerl.spaces import Box
from purerl.types import Env

KINDS = {
    "image": ("images", lambda env: any(map(is_image, spaces.leaves(env.observation_space)))),
    "memory": ("observations that hide what matters", lambda env: env.partly_observed),
    "continuous": ("continuous actions", lambda env: isinstance(env.action_space, Box)),
}
"""What an environment must have for each preset to fit, in words and as a predicate."""


def fitting(algorithm: Algorithm, config: Loop, env: Env) -> dict[str, str]:
    """Returns the presets of ``algorithm`` that fit an environment, each with the reason why it does.

    A preset is left out if ``config`` differs from the defaults in one of its settings, other than the length, because
    that setting was then chosen deliberately.

    Args:
        algorithm: The algorithm.
        config: Settings as they were given.
        env: Environment as the algorithm sees it.
    """
    usual = algorithm.Config()
    chosen = {field for field in vars(usual) if getattr(config, field) != getattr(usual, field)} - {"total_steps"}
    return {
        name: reason
        for name, (reason, fits) in KINDS.items()
        if name in algorithm.presets and fits(env) and not chosen & set(algorithm.presets[name])
    }
