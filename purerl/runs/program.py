"""The host's side of a training: compiled chunks of iterations, one after another, with a look in between.

Chunks compute what one scan would, bit for bit on CPU, however long each is.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from purerl import loops, population, trees
from purerl.population import planning
from purerl.types import Trainer, TrainState

CAPACITY = 256
"""Most iterations of a chunk, and so the rows of metrics that the device holds."""
CHUNK_SECONDS = 0.25
"""What a chunk should take: how long the progress bar and Ctrl-C wait."""


class Program(NamedTuple):
    """Trainings of ``chunk.batch_size`` members at once, compiled. ``chunk.program`` donates the state it is given."""

    init: Callable[[population.Members], TrainState]
    chunk: planning.Compiled
    compile_seconds: float


class Chunk(NamedTuple):
    """What a chunk left: the members' states, how many iterations are done, and metrics ``[iterations, members]``.

    ``state`` leads with at least as many rows as there are members; the rest fill the program up.
    """

    state: TrainState
    iteration: int
    metrics: dict[str, np.ndarray]


def compile_program(
    make_trainer: Callable[..., Trainer],
    members: population.Members,
    batch_size: int | str = "auto",
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Program:
    """Compiles the trainings ``make_trainer(**given)`` of a population, one program for any number of iterations.

    ``batch_size`` and ``lanes`` are as for `population.train_population`. Raises `planning.DoesNotFit`.
    """
    start = time.perf_counter()
    init_one = jax.jit(lambda m: make_trainer(**m.given).init(m.keys), inline=True)
    planning.check_state(init_one, trees.take(members, 0), devices=devices)

    def chunk_of(given, state, length):
        return loops.chunk(make_trainer(**given), CAPACITY)(state, length)

    def lower(size: int) -> tuple[jax.stages.Lowered, population.Layout]:
        layout = population.layout(size, devices, lanes)
        given = trees.shapes(trees.fill(members, layout.size), layout.sharding)
        states = trees.shapes(jax.eval_shape(init_all(layout), given), layout.sharding)
        program = jax.jit(population.spread(chunk_of, layout), donate_argnums=1)
        return program.lower(given.given, states, np.int32(0)), layout

    def init_all(layout: population.Layout) -> Callable[[population.Members], TrainState]:
        init = population.spread(lambda m, _: ((), init_one(m)), layout)
        return lambda members: init(members, ())[1]

    chunk = planning.compile_to_fit(lower, members.size, batch_size, "cut num_envs or what else makes an agent large")
    given = trees.shapes(trees.fill(members, chunk.layout.size), chunk.layout.sharding)
    init = jax.jit(init_all(chunk.layout)).lower(given).compile()
    return Program(init, chunk, time.perf_counter() - start)


def chunks(program: Program, members: population.Members, num_iterations: int) -> Iterator[Chunk]:
    """Trains a batch of members from the start, yielding after each chunk; chunks strive towards `CHUNK_SECONDS`.

    A state that was yielded is donated to the next chunk: read what you need of it before going on.
    """
    layout, size = program.chunk.layout, members.size
    members = population.place(members, layout)
    state, done, length = program.init(members), 0, 1
    while done < num_iterations:
        length = min(length, num_iterations - done, CAPACITY)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(program.chunk.program(members.given, state, np.int32(length)))
        seconds = time.perf_counter() - start
        done += length
        yield Chunk(state, done, {name: np.asarray(m)[:size, :length].T for name, m in metrics.items()})
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
