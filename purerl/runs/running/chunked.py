"""A training in Python with a look in between: chunks of iterations, as the command line runs them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from purerl import loops
from purerl.runs.running import program, session
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
    copy (`jax.device_get`) what you keep of it. Returns the last state and all metrics, on the host.
    """
    advance = jax.jit(loops.chunk(trainer, program.CAPACITY), donate_argnums=0)
    state, found = jax.jit(trainer.init)(key), list[Any]()
    pace: dict[str, Any] = {"capacity": program.CAPACITY, "chunk_seconds": program.CHUNK_SECONDS, "every": every}
    for chunk in session.advance(advance, state, 0, num_iterations, **pace):
        state = chunk.state
        found.append({name: np.asarray(values)[: chunk.length] for name, values in chunk.metrics.items()})
        if on_chunk(state, found[-1]) is True:
            break
    metrics: Any = {name: np.concatenate([each[name] for each in found]) for name in (found or [{}])[0]}
    return Result(state, metrics)
