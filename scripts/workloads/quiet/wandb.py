"""Stands in for Weights & Biases where scripts of others are timed: a log is the time at which it came."""

import time
import types
from typing import Any


class Config(dict):
    """What a run is configured with."""

    def as_dict(self) -> dict:
        """Returns a copy."""
        return dict(self)


config = Config()


def init(config: dict, **_: Any) -> Any:
    """Takes note of the ``config``, and returns a run that has it."""
    globals()["config"] = Config(config)
    return types.SimpleNamespace(config=globals()["config"])


def log(result: Any) -> None:
    """Prints the time, in seconds."""
    print("logged at", time.perf_counter(), flush=True)


def nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing."""


define_metric = Video = Image = nothing
