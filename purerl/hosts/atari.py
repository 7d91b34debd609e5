"""Atari's usual preprocessing, which ``atari=1`` stands for.

Source: Mnih et al. 2015, Methods, "Preprocessing", "Training details" and "Evaluation procedure", with the time limit
of Hessel et al. 2018 (arXiv 1710.02298).

In this order: up to 30 no-ops at the beginning of an episode; each action for 4 frames; the maximum over the last two
of them; grey, ``[84, 84]``; with ``life_loss=1`` an end where a life is lost, after which the next episode goes on with
the game; an end after 108,000 frames (27,000 steps), truncated; rewards clipped to [-1, 1]; stacks of 4.
"""

from collections.abc import Callable
from typing import Any

from purerl.errors import ConfigError
from purerl.hosts.libraries import needs

OWN = "atari", "life_loss"
"""The names of the parameters that are read here."""
ON_DEVICE = {"reward_clip": 1, "frame_stack": 4}
"""The transforms of ``atari=1`` that follow those of the host, with their values."""
NOOPS, SKIP, SIZE, FRAMES = 30, 4, 84, 108_000


def is_on(name: str, params: dict[str, Any]) -> bool:
    """Returns whether ``params`` ask for the preprocessing.

    Raises:
        ConfigError: If a value is neither 0 nor 1, or ``life_loss`` is given without ``atari``.
    """
    for each in OWN:
        if params.get(each) not in (None, 0, 1):
            raise ConfigError(f"env = {name!r}: {each} = {params[each]!r}: must be 0 or 1")
    if params.get("life_loss") and not params.get("atari"):
        raise ConfigError(f"env = {name!r}: life_loss = {params['life_loss']!r}: needs atari=1")
    return bool(params.get("atari"))


def envpool_options(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns EnvPool's options for ``params``, which may hold others of EnvPool's options; those win."""
    rest = {each: value for each, value in params.items() if each not in OWN}
    if not is_on(name, params):
        return rest
    return {
        "noop_max": NOOPS,
        "frame_skip": SKIP,
        "stack_num": 1,
        "gray_scale": True,
        "img_height": SIZE,
        "img_width": SIZE,
        "max_episode_steps": FRAMES // SKIP,
        "episodic_life": bool(params.get("life_loss")),
        "use_fire_reset": False,
        "reward_clip": False,
        **rest,
    }


def gymnasium_options(name: str, params: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any] | None]:
    """Returns the options of ``gymnasium.make`` for ``params``, and a function that wraps the environment.

    The function is None if nothing wraps it. Actions do not stick unless ``repeat_action_probability`` is given.
    """
    rest = {each: value for each, value in params.items() if each not in OWN}
    if not is_on(name, params):
        return rest, None
    needs(f"env = {name!r}, atari = 1", "atari", "cv2")
    options = {
        "frameskip": 1,
        "repeat_action_probability": 0.0,
        "max_num_frames_per_episode": FRAMES,
        "obs_type": "grayscale",
        **rest,
    }

    def wrap(env: Any) -> Any:
        from gymnasium.wrappers import AtariPreprocessing

        from purerl.hosts.lives import Lives

        env = AtariPreprocessing(env, noop_max=NOOPS, frame_skip=SKIP, screen_size=SIZE, grayscale_obs=True)
        return Lives(env) if params.get("life_loss") else env

    return options, wrap


def settings(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns ``params`` of the environment ``name`` with the device's transforms of ``atari=1`` written out.

    They are added if ``params`` ask for the preprocessing; those that are given win. Imports nothing.
    """
    family = name.partition("/")[0]
    return {**ON_DEVICE, **params} if family in ("envpool", "gymnasium") and params.get("atari") == 1 else params
