"""Recurrent layers: GRU and LSTM cells, a linear recurrent unit, a gated transformer.

Each is a `Memory`, so code that unrolls one does not depend on its kind.
"""

from purerl.networks.memory.base import Memory, forgetful
from purerl.networks.memory.cells import cell
from purerl.networks.memory.gtrxl import transformer
from purerl.networks.memory.lru import linear

__all__ = ["MEMORIES", "Memory", "cell", "forgetful", "linear", "make", "transformer"]

MEMORIES = ("gru", "lstm", "lru", "gtrxl")


def make(kind: str, size: int, window: int = 32) -> Memory:
    """Makes a memory with ``size`` outputs.

    Args:
        kind: One of `MEMORIES`: "gru" and "lstm" are `cell`, "lru" is `linear`, "gtrxl" is `transformer`.
        size: The number of outputs.
        window: The number of past steps that "gtrxl" attends to; the others ignore it.
    """
    if kind == "lru":
        return linear(size)
    return transformer(size, window) if kind == "gtrxl" else cell(kind, size)
