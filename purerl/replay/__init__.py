"""Replay buffers, each a `Replay` bundle of pure functions, and the views that define what a sample is."""

from purerl.replay.fifo import queue
from purerl.replay.fixed import evenly, fed, fixed, held
from purerl.replay.host import on_host
from purerl.replay.mixed import mixed
from purerl.replay.priorities import normalised
from purerl.replay.ring import prioritised, uniform, weighted
from purerl.replay.streamed import streamed
from purerl.replay.views import View, sequences, transitions

__all__ = [
    "View",
    "evenly",
    "fed",
    "fixed",
    "held",
    "mixed",
    "normalised",
    "on_host",
    "prioritised",
    "queue",
    "sequences",
    "streamed",
    "transitions",
    "uniform",
    "weighted",
]
