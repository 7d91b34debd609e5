"""Early stopping as a user asks for it, as a run's description has it, and as its trainers carry it out."""

import math
from typing import Any

from purerl.errors import ConfigError
from purerl.loops import stopping
from purerl.store import guards
from purerl.types import Trainer

EVALUATIONS = "eval_every", "eval_episodes"
FOLLOWS_FROM = (*EVALUATIONS, "sample")
"""The options from which the results of a run follow if its agents stop early."""
KEYS = {"at", "episodes"}, {"at", *EVALUATIONS}, {"at", *FOLLOWS_FROM}, {"at", "episodes", "metric"}
RETURN, INFO = "episode_return", "info/"


def target(stop_at: float | str) -> tuple[str, float]:
    """Returns the metric and the mean at which agents stop. Raises `ValueError` if the option has another form."""
    if not isinstance(stop_at, str):
        return RETURN, float(stop_at)
    metric, _, number = stop_at.rpartition(":")
    at = float(number)
    if not metric.startswith(INFO) or not math.isfinite(at):
        raise ValueError(stop_at)
    return metric, at


def problems_of_options(options: Any) -> list[str]:
    """Returns a line if an option of early stopping has another form than it must, or no effect."""
    if options.stop_at is not None:
        try:
            metric, _ = target(options.stop_at)
        except ValueError:
            return [f"stop_at = {options.stop_at!r}: must be a return, or info/NAME:NUMBER"]
        if metric != RETURN and options.eval_every:
            return [f"stop_at = {options.stop_at!r}: evaluations have returns alone; leave eval_every out"]
    if options.stop_episodes == type(options).stop_episodes:
        return []
    problem = f"stop_episodes = {options.stop_episodes}: has no effect"
    if options.stop_at is None:
        return [f"{problem} without stop_at"]
    return [f"{problem} with eval_every; evaluations have eval_episodes"] if options.eval_every else []


def described(options: Any) -> dict[str, Any]:
    """Returns the entry of a description that says when agents stop early; empty if they do not.

    It has ``at``, the mean return at which an agent stops, and beside it either ``episodes``, the number of episodes of
    that mean, or ``eval_every`` and ``eval_episodes``, and ``sample`` if evaluations do. With a ``metric`` that is the
    mean instead of the return.
    """
    if options.stop_at is None:
        return {}
    metric, at = target(options.stop_at)
    if options.eval_every:
        return {"at": at, **{name: value for name in FOLLOWS_FROM if (value := getattr(options, name))}}
    return {"at": at, "episodes": options.stop_episodes, **({"metric": metric} if metric != RETURN else {})}


def options(described: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns the options that a description in a file stands for.

    Raises:
        ConfigError: If the description has a fault; each line begins with ``source``.
    """
    if lines := problems(described):
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines))
    names, rest = {"at": "stop_at", "episodes": "stop_episodes"}, dict(described)
    if metric := rest.pop("metric", ""):
        rest["at"] = f"{metric}:{rest['at']}"
    return {names.get(name, name): value for name, value in rest.items()}


def problems(described: dict[str, Any]) -> list[str]:
    """Returns a line if a file's description of early stopping has a fault."""
    counts = [value for name, value in described.items() if name not in ("at", "metric", "sample")]
    sound = all(type(value) is int and 0 < value < 2**31 for value in counts) and guards.is_number(described.get("at"))
    sound &= str(described.get("metric", INFO)).startswith(INFO) and described.get("sample", True) is True
    if not described or (set(described) in KEYS and sound):
        return []
    return ["stop: must have a return at, and beside it the number episodes, or eval_every and eval_episodes"]


def by_evaluations(described: dict[str, Any]) -> bool:
    """Returns whether evaluations decide which agents stop."""
    return "eval_every" in described


def by_host(described: dict[str, Any], trainer: Trainer) -> bool:
    """Returns whether what environments of the host tell decides which agents stop."""
    return "metric" in described and trainer.host is not None


def stopping_trainer(trainer: Trainer, described: dict[str, Any]) -> Trainer:
    """Makes a trainer like ``trainer`` whose agents stop as a description says.

    Raises:
        ConfigError: If the environment does not tell the number by which they stop.
    """
    if not described:
        return trainer
    if by_evaluations(described) or by_host(described, trainer):
        return stopping.stop_at(trainer, None)
    metric = described.get("metric", RETURN)
    told = [f"{INFO}{name}" for name in trainer.fleet.env.info_names] if trainer.fleet.env else []
    if metric not in (RETURN, *told):
        known = ", ".join(told) or "no numbers"
        raise ConfigError(f"stop_at = '{metric}:{described['at']}': {trainer.fleet.env.name} tells {known}")
    return stopping.stop_at(trainer, described["at"], described["episodes"], metric)
