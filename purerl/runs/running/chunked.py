"""A training in Python with a look in between: chunks of iterations, as the command line runs them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from purerl import loops, population, trees
from purerl.hosts.opening import How
from purerl.runs.running import program, session
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
    """Trains as ``jax.jit(loops.train(trainer, num_iterations))(key)`` does, and calls ``on_chunk(state, metrics)``
    after each chunk of iterations, whose metrics are numpy arrays ``[iterations]``. Consumes ``key``.

    A chunk takes about a quarter of a second; with ``every`` one ends at each multiple of so many iterations. The
    training ends early where ``on_chunk`` returns True. The state that it is given is overwritten by the next chunk:
    copy (`jax.device_get`) what you keep of it. Returns the last state and all metrics, on the host. Environments of
    the host are stepped in workers where that is the faster, and closed in the end.
    """
    found: list[Any] = []
    with contextlib.ExitStack() as stack:
        state, chunks = (_hosted if trainer.fleet.host else _compiled)(trainer, key, num_iterations, every, stack)
        for state, metrics in chunks:
            found.append(metrics)
            if on_chunk(state, metrics) is True:
                break
    joined: Any = {name: np.concatenate([each[name] for each in found]) for name in (found or [{}])[0]}
    return Result(state, joined)


Begun = tuple[TrainState, Iterator[tuple[TrainState, Any]]]
"""The state that a training begins with, and those after its chunks, with their metrics."""


def _compiled(trainer: Trainer, key: Key, num_iterations: int, every: int, stack: contextlib.ExitStack) -> Begun:
    """A training that is one program."""
    advance = jax.jit(loops.chunk(trainer, program.CAPACITY), donate_argnums=0)
    pace: dict[str, Any] = {"capacity": program.CAPACITY, "chunk_seconds": program.CHUNK_SECONDS, "every": every}
    state = jax.jit(trainer.init)(key)
    cut = lambda chunk: {name: np.asarray(values)[: chunk.length] for name, values in chunk.metrics.items()}
    return state, ((chunk.state, cut(chunk)) for chunk in session.advance(advance, state, 0, num_iterations, **pace))


def _hosted(trainer: Trainer, key: Key, num_iterations: int, every: int, stack: contextlib.ExitStack) -> Begun:
    """One in environments of the host, which ``stack`` closes: a population of one."""
    alone = population.Members({}, key[None])
    running = stack.enter_context(contextlib.closing(HostProgram(lambda: trainer, alone, How(), ahead=0)))
    begun, mine = running.begin(alone), lambda state: trees.take(state, 0)
    chunks = running.chunks(alone, begun, 0, num_iterations, every)
    row = lambda chunk: {name: values[:, 0] for name, values in chunk.metrics.items()}
    return mine(begun), ((mine(chunk.state), row(chunk)) for chunk in chunks)
