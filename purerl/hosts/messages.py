"""What a worker is told, and what it answers."""

import signal
from typing import Any, NamedTuple

DONE, ENDED, CLOSING = b"d", b"e", b"l"
"""Answers: done, done with episodes that ended, and that the environments are being closed."""
TOLD = b"t"
"""The first byte of an answer that is a line of JSON: done, with episodes that ended and told this (`Turn.told`)."""
READY, REFUSED, RAISED, INVALID, HUNG = b"r", b"c", b"f", b"n", b"h"
"""First bytes of answers that are a line of JSON: the layout, once; and why the worker ends."""
MAP = b"m"
"""The first command: the memory has its size."""
INTERRUPT = signal.SIGUSR1
"""The signal that asks a worker that takes too long where it is."""


class Share(NamedTuple):
    """The input of a worker, as JSON.

    It has its number and the number of all workers, the environment, the sizes of all groups, the rows ``[start,
    stop]`` of each group that are its own, the number of its first environment in each, ``games``, and file
    descriptors. ``games`` are the number of episodes that each environment plays and their limit (`Batch.play`); zeros:
    it plays without end. ``scout`` is the number of environments that it is to look at one for, before it is told its
    share; 0: it is told already.
    """

    worker: int
    workers: int
    name: str
    params: dict[str, Any]
    sizes: list[int]
    rows: list[list[int]]
    first: list[int]
    games: list[int]
    scout: int
    memory: int
    inbox: int
    life: int
    replies: list[int]


def command(group: int, slot: int, begins: bool) -> bytes:
    """Returns one byte for a step of a group, or the beginning of its episodes, whose observations go to ``slot``."""
    return bytes((group << 2 | slot << 1 | begins,))
