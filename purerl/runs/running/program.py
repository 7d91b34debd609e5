"""The host's side of a training: compiled chunks of iterations, one after another, with a look in between.

Chunks compute what one scan would, bit for bit on CPU, however long each is.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from purerl import backend, loops, population, trees
from purerl.errors import own_code
from purerl.population import planning
from purerl.runs.running import session
from purerl.runs.running.session import Chunk
from purerl.store import checkpoint
from purerl.types import Trainer, TrainState

CAPACITY = 256
"""Most iterations of a chunk, and so the rows of metrics that the device holds."""
CHUNK_SECONDS = 0.25
"""What a chunk should take: how long the progress bar and Ctrl-C wait."""


class Program(NamedTuple):
    """Trainings of ``chunk.batch_size`` members at once, compiled. ``init(members)`` makes a state of the shapes
    ``like``; ``chunk.program`` donates the state it is given."""

    init: jax.stages.Compiled
    like: TrainState
    chunk: planning.Compiled
    compile_seconds: float

    def begin(self, members: population.Members, step: checkpoint.Step | None = None) -> TrainState:
        """The state of a batch of members at the start, or at a saved step; on the devices, filled up with more rows.

        Raises `ConfigError` if the step is of other members.
        """
        layout = self.chunk.layout
        placed = population.place(members, layout)
        if step is None:
            return self.init(placed)
        return saved(step, members.size, self.like, layout)

    def chunks(
        self, members: population.Members, state: TrainState, done: int, num_iterations: int, every: int = 0
    ) -> Iterator[Chunk]:
        """Trains a batch of members from iteration ``done`` on: `session.advance`, with metrics ``[iterations,
        members]`` on the host.

        The state leads with at least as many rows as there are members; the rest fill the program up.
        """
        size, placed = members.size, population.place(members, self.chunk.layout)
        advancing = functools.partial(self.chunk.program, placed.given)
        paced = session.advance(
            advancing, state, done, num_iterations, capacity=CAPACITY, chunk_seconds=CHUNK_SECONDS, every=every
        )
        for chunk in paced:
            metrics = {name: _rows(values, chunk.length)[:size].T for name, values in chunk.metrics.items()}
            yield chunk._replace(metrics=metrics)

    def close(self) -> None:
        """Does nothing: nothing is open."""


def saved(step: checkpoint.Step, size: int, like: TrainState, layout: population.Layout) -> TrainState:
    """The state of ``size`` members at a saved step, on the devices, filled up to the shapes ``like``.

    Raises `ConfigError` if the step is of other members.
    """
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), like)
    return checkpoint.read(step, rows, lambda array: population.place(array, layout))


def compile_program(
    make_trainer: Callable[..., Trainer],
    members: population.Members,
    batch_size: int | str = "auto",
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
    stage: Callable[[str], None] = lambda name: None,
    algo: str = "",
) -> Program:
    """Compiles the trainings ``make_trainer(**given)`` of a population, one program for any number of iterations, and
    beside it, in another thread, the one that makes the state that they begin with.

    ``batch_size`` and ``lanes`` are as for `population.train_population`; ``stage`` is told what begins after tracing.
    Raises `planning.DoesNotFit`, and while it traces, before anything compiles, `ConfigError` for what somebody's own
    code raises, as `errors.own_code` does, which the name ``algo`` is for.
    """
    start = time.perf_counter()
    init_one = jax.jit(lambda m: make_trainer(**m.given).init(m.keys), inline=True)
    with own_code(algo):
        planning.check_state(init_one, trees.take(members, 0), devices=devices)
    starts: list[Future[jax.stages.Compiled]] = []

    def chunk_of(given, state, length):
        return loops.chunk(make_trainer(**given), CAPACITY)(state, length)

    def lower(size: int) -> tuple[jax.stages.Lowered, population.Layout]:
        layout = population.layout(size, devices, lanes)
        given = trees.shapes(trees.fill(members, layout.size), layout.sharding)
        with own_code(algo):
            init = jax.jit(init_all(layout)).trace(given)
            states = trees.shapes(init.out_info, layout.sharding)
            traced = jax.jit(population.spread(chunk_of, layout), donate_argnums=1).trace(
                given.given, states, np.int32(0)
            )
        stage("compiling")
        starts.append(beside.submit(init.lower().compile, backend.compiler_options()))
        return traced.lower(), layout

    def init_all(layout: population.Layout) -> Callable[[population.Members], TrainState]:
        init = population.spread(lambda m, _: ((), init_one(m)), layout)
        return lambda members: init(members, ())[1]

    with ThreadPoolExecutor(1) as beside:
        chunk = planning.compile_to_fit(
            lower, members.size, batch_size, "cut num_envs or what else makes an agent large"
        )
        stage("compiling the start")
        init = starts[-1].result()
    return Program(init, init.out_info, chunk, time.perf_counter() - start)


def _rows(values: jax.Array, length: int) -> np.ndarray:
    """The first ``length`` columns of an array ``[P, capacity]``, part by part: no CPU device copies the rest."""
    parts = sorted(values.addressable_shards, key=lambda part: part.index[0].start or 0)
    return np.concatenate([np.asarray(part.data)[:, :length] for part in parts])
