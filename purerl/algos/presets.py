"""Presets for the kinds of task that the defaults are not for, and which of them fits an environment.

Defaults are for observations that are vectors and for actions that are discrete (of `off_policy_gradients`: for few
continuous ones). An algorithm that has settings for another kind of task calls them by one of these names.
"""

from typing import Any

from purerl import networks, spaces
from purerl.spaces import Box
from purerl.types import Env

KINDS = {
    "image": ("images", lambda env: any(map(networks.is_image, spaces.leaves(env.observation_space)))),
    "memory": ("observations that hide what matters", lambda env: env.partly_observed),
    "continuous": ("continuous actions", lambda env: isinstance(env.action_space, Box)),
}
"""For each preset what an environment must have for it to fit, in words and as a predicate."""


def fitting(algorithm: Any, config: Any, env: Env) -> dict[str, str]:
    """The presets of ``algorithm`` that fit ``env``, as the algorithm sees it, and why.

    A preset one of whose settings, other than the length, has another value in ``config`` than by default is left out:
    whoever gave it has chosen.
    """
    usual = algorithm.Config()
    chosen = {field for field in vars(usual) if getattr(config, field) != getattr(usual, field)} - {"total_steps"}
    return {
        name: reason
        for name, (reason, fits) in KINDS.items()
        if name in algorithm.presets and fits(env) and not chosen & set(algorithm.presets[name])
    }
