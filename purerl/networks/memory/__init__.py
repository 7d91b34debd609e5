"""Layers that remember: the gated cells of LSTM and GRU, a linear recurrent unit, a gated transformer.

All are a `Memory`, so whoever unrolls one knows nothing of what is inside.
"""

from typing import Literal

from purerl.networks.memory.base import Memory
from purerl.networks.memory.cells import cell
from purerl.networks.memory.linear import linear
from purerl.networks.memory.transformer import transformer

__all__ = ["MEMORIES", "Memory", "cell", "linear", "make", "transformer"]

MEMORIES = ("gru", "lstm", "lru", "gtrxl")


def make(kind: Literal["gru", "lstm", "lru", "gtrxl"], size: int, window: int = 32) -> Memory:
    """A memory of ``size`` outputs: ``gru`` and ``lstm`` are `cell`, ``lru`` is `linear`, ``gtrxl`` is `transformer`,
    which sees ``window`` steps back."""
    if kind == "lru":
        return linear(size)
    return transformer(size, window) if kind == "gtrxl" else cell(kind, size)
