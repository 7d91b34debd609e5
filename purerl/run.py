"""The host's side of a training: compiled chunks of iterations, one after another, with a look in between.

Chunks compute what one scan would, bit for bit on CPU, however long each is.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import loops
from purerl.types import Key, Metrics, Trainer, TrainState

CAPACITY = 256
"""Most iterations of a chunk, and so the rows of metrics that the device holds."""
CHUNK_SECONDS = 0.25
"""What a chunk should take: how long the progress bar and Ctrl-C wait."""


class Program(NamedTuple):
    """A training of ``S`` seeds, compiled. ``chunk`` donates the state it is given."""

    init: Callable[[Key], TrainState]
    chunk: Callable[[TrainState, Any], tuple[TrainState, Metrics]]
    compile_seconds: float


class Chunk(NamedTuple):
    """What a chunk left: the state of all seeds, how many iterations are done, and metrics ``[iterations, S]``."""

    state: TrainState
    iteration: int
    metrics: dict[str, np.ndarray]


def compile(trainer: Trainer, keys: Key) -> Program:
    """Compiles a training for ``keys`` ``[S]``, one program for any number of iterations."""
    start = time.perf_counter()
    several = jax.vmap if len(keys) > 1 else _only
    init_all = several(trainer.init)
    init = jax.jit(init_all).lower(keys).compile()
    chunk_all = several(loops.chunk(trainer, CAPACITY), in_axes=(0, None))
    states = jax.eval_shape(init_all, keys)
    chunk = jax.jit(chunk_all, donate_argnums=0).lower(states, np.int32(0)).compile()
    return Program(init, chunk, time.perf_counter() - start)


def _only(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap` over one seed, whose axis is taken off outside ``function`` and put back after it.

    XLA on CPU simplifies an axis of one element away half-way through and then rounds as neither a lone run nor a run
    of several seeds does.
    """

    def call(first, *rest):
        lone = jax.tree.map(lambda x: x[0], first)
        return jax.tree.map(lambda x: x[None], function(lone, *rest))

    return call


def chunks(program: Program, keys: Key, num_iterations: int) -> Iterator[Chunk]:
    """Trains from the start, yielding after each chunk; chunks grow or shrink towards `CHUNK_SECONDS`.

    A state that was yielded is donated to the next chunk: read what you need of it before going on.
    """
    state, done, length = program.init(keys), 0, 1
    while done < num_iterations:
        length = min(length, num_iterations - done, CAPACITY)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(program.chunk(state, np.int32(length)))
        seconds = time.perf_counter() - start
        done += length
        yield Chunk(state, done, {name: np.asarray(m)[:, :length].T for name, m in metrics.items()})
        length = max(1, int(length * min(4.0, CHUNK_SECONDS / seconds)))


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
    """Within it, the first SIGINT or SIGTERM only lands in the list it gives; the second acts as usual."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number, frame):
        received.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
