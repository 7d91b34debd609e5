"""Replay buffers, each a `Replay` bundle of pure functions, and the views that define what a sample is."""

from purerl.replay.fifo import queue
from purerl.replay.fixed import dataset_problems, fixed, stored, struct
from purerl.replay.host import on_host
from purerl.replay.mixed import mixed
from purerl.replay.priorities import normalised
from purerl.replay.ring import CUT_ROWS, least_rows, most_frames, prioritised, uniform, weighted
from purerl.replay.views import Cut, View, sequences, transitions

__all__ = [
    "CUT_ROWS",
    "Cut",
    "View",
    "dataset_problems",
    "fixed",
    "least_rows",
    "mixed",
    "most_frames",
    "normalised",
    "on_host",
    "prioritised",
    "queue",
    "sequences",
    "stored",
    "struct",
    "transitions",
    "uniform",
    "weighted",
]
