"""Training from Python with a callback between chunks of iterations; the command line runs the same chunks."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from purerl import loops, population, trees
from purerl.hosts.opening import How
from purerl.runs.running import device_program, run_loop
from purerl.runs.running.host_program import HostProgram
from purerl.types import Key, Metrics, Result, Trainer, TrainState


def train_in_chunks(
    trainer: Trainer,
    key: Key,
    num_iterations: int,
    on_chunk: Callable[[TrainState, Metrics], Any] = lambda state, metrics: None,
    *,
    every: int = 0,
) -> Result:
    """Trains an agent and calls a function after each chunk of iterations.

    It computes what ``jax.jit(loops.train(trainer, num_iterations))(key)`` computes. Environments of the host are
    stepped in worker processes where that is faster, and closed at the end.

    Args:
        trainer: The trainer.
        key: Consumed.
        num_iterations: The number of iterations.
        on_chunk: Called as ``on_chunk(state, metrics)`` after each chunk, with metrics as numpy arrays
            ``[iterations]``. The training ends early where it returns True. The next chunk overwrites the state: copy
            (`jax.device_get`) what is needed of it.
        every: If it is not 0, a chunk also ends at each multiple of so many iterations. A chunk takes about a quarter
            of a second.

    Returns:
        The last state, and the metrics of all iterations as numpy arrays.
    """
    rows: list[Any] = []
    with contextlib.ExitStack() as stack:
        state, chunks = (_hosted if trainer.fleet.host else _compiled)(trainer, key, num_iterations, every, stack)
        for state, metrics in chunks:
            rows.append(metrics)
            if on_chunk(state, metrics) is True:
                break
    joined: Any = {name: np.concatenate([each[name] for each in rows]) for name in (rows or [{}])[0]}
    return Result(state, joined)


Started = tuple[TrainState, Iterator[tuple[TrainState, Any]]]
"""The state that a training begins with, and an iterator over the states and metrics after its chunks."""


def _compiled(trainer: Trainer, key: Key, num_iterations: int, every: int, stack: contextlib.ExitStack) -> Started:
    """Begins a training that is one compiled program."""
    advance = jax.jit(loops.chunk(trainer, device_program.CAPACITY), donate_argnums=0)
    pace: dict[str, Any] = {
        "capacity": device_program.CAPACITY,
        "chunk_seconds": device_program.CHUNK_SECONDS,
        "every": every,
    }
    state = jax.jit(trainer.init)(key)
    cut = lambda chunk: {name: np.asarray(values)[: chunk.length] for name, values in chunk.metrics.items()}
    return state, ((chunk.state, cut(chunk)) for chunk in run_loop.advance(advance, state, 0, num_iterations, **pace))


def _hosted(trainer: Trainer, key: Key, num_iterations: int, every: int, stack: contextlib.ExitStack) -> Started:
    """Begins a training in environments of the host, as a population of one; ``stack`` closes them."""
    alone = population.Members({}, key[None])
    running = stack.enter_context(contextlib.closing(HostProgram(lambda: trainer, alone, How(), ahead=0)))
    begun, mine = running.begin(alone), lambda state: trees.take(state, 0)
    chunks = running.chunks(alone, begun, 0, num_iterations, every)
    row = lambda chunk: {name: values[:, 0] for name, values in chunk.metrics.items()}
    return mine(begun), ((mine(chunk.state), row(chunk)) for chunk in chunks)
