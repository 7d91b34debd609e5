"""Recurrent layers: GRU and LSTM cells, a linear recurrent unit, a gated transformer.

Each is a `Memory`, so code that unrolls one does not depend on its kind.
"""

from purerl.networks.memory.base import Memory
from purerl.networks.memory.cells import cell
from purerl.networks.memory.forgetful import forgetful
from purerl.networks.memory.gtrxl import transformer
from purerl.networks.memory.lru import linear

__all__ = ["MEMORIES", "Memory", "cell", "forgetful", "linear", "make", "transformer"]

MEMORIES = ("gru", "lstm", "lru", "gtrxl")


def make(kind: str, size: int, window: int = 32) -> Memory:
    """A memory with ``size`` outputs: ``gru`` and ``lstm`` are `cell`, ``lru`` is `linear`, ``gtrxl`` is `transformer`.

    Only ``gtrxl`` uses ``window``, the number of past steps that it attends to.
    """
    if kind == "lru":
        return linear(size)
    return transformer(size, window) if kind == "gtrxl" else cell(kind, size)
