"""Replay buffers, each a `Replay` bundle of pure functions, and the views that define what a sample is."""

from purerl.replay.fifo import queue
from purerl.replay.host import on_host
from purerl.replay.ring import CUT_ROWS, least_rows, most_frames, prioritised, uniform
from purerl.replay.views import Cut, View, sequences, transitions

__all__ = [
    "CUT_ROWS",
    "Cut",
    "View",
    "least_rows",
    "most_frames",
    "on_host",
    "prioritised",
    "queue",
    "sequences",
    "transitions",
    "uniform",
]
