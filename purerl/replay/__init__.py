"""Replay buffers, as `Replay` bundles of pure functions."""

from purerl.replay.host import on_host
from purerl.replay.queue import queue
from purerl.replay.ring import least_rows, prioritised, uniform
from purerl.replay.views import View, sequences, transitions

__all__ = ["View", "least_rows", "on_host", "prioritised", "queue", "sequences", "transitions", "uniform"]
