"""Early stopping as a user asks for it, as a run's description has it, and as its trainers carry it out."""

from typing import Any

from purerl.errors import ConfigError
from purerl.loops import stopping
from purerl.store import untrusted
from purerl.types import Trainer

FOLLOWS_FROM = ("eval_every", "eval_episodes")
"""The options from which the results of a run follow if its agents stop early."""
KEYS = {"at", "episodes"}, {"at", *FOLLOWS_FROM}


def problems_of_options(options: Any) -> list[str]:
    """Returns a line if an option of early stopping has no effect."""
    if options.stop_episodes == type(options).stop_episodes:
        return []
    problem = f"stop_episodes = {options.stop_episodes}: has no effect"
    if options.stop_at is None:
        return [f"{problem} without stop_at"]
    return [f"{problem} with eval_every; evaluations have eval_episodes"] if options.eval_every else []


def described(options: Any) -> dict[str, Any]:
    """Returns the entry of a description that says when agents stop early; empty if they do not.

    It has ``at``, the mean return at which an agent stops, and beside it either ``episodes``, the number of episodes of
    that mean, or ``eval_every`` and ``eval_episodes``.
    """
    if options.stop_at is None:
        return {}
    by_play = {name: getattr(options, name) for name in FOLLOWS_FROM}
    return {"at": float(options.stop_at), **(by_play if options.eval_every else {"episodes": options.stop_episodes})}


def options(described: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns the options that a description in a file stands for.

    Raises:
        ConfigError: If the description has a fault; each line begins with ``source``.
    """
    if lines := problems(described):
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines))
    names = {"at": "stop_at", "episodes": "stop_episodes"}
    return {names.get(name, name): value for name, value in described.items()}


def problems(described: dict[str, Any]) -> list[str]:
    """Returns a line if a file's description of early stopping has a fault."""
    counts = [value for name, value in described.items() if name != "at"]
    sound = all(type(value) is int and 0 < value < 2**31 for value in counts) and untrusted.is_number(
        described.get("at")
    )
    if not described or (set(described) in KEYS and sound):
        return []
    return ["stop: must have a return at, and beside it the number episodes, or eval_every and eval_episodes"]


def by_evaluations(described: dict[str, Any]) -> bool:
    """Returns whether evaluations decide which agents stop."""
    return "eval_every" in described


def stopping_trainer(trainer: Trainer, described: dict[str, Any]) -> Trainer:
    """Makes a trainer like ``trainer`` whose agents stop as a description says."""
    if not described:
        return trainer
    if by_evaluations(described):
        return stopping.stop_at(trainer, None)
    return stopping.stop_at(trainer, described["at"], described["episodes"])
