"""The training loop of compiled programs: chunks of iterations, between which the caller acts.

Chunks of any length compute what one scan would, bit for bit on CPU.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, population, processes, trees
from purerl.errors import own_code
from purerl.loops import Stream
from purerl.population import layouts, planning, splitting
from purerl.population.layouts import spread
from purerl.population.splitting import WHOLE, Split
from purerl.runs.running import run_loop, streaming
from purerl.runs.running.run_loop import Chunk
from purerl.store import checkpoint
from purerl.types import PyTree, Trainer, TrainState

CAPACITY = 256
"""The largest number of iterations of a chunk, which is the number of rows of metrics on the device."""
CHUNK_SECONDS = 0.25
"""The seconds that a chunk should take, which is how long the progress bar and Ctrl-C wait."""


class RunProgram(NamedTuple):
    """The compiled training of ``chunk.batch_size`` members at once.

    - ``init``: ``init(members)`` makes a state of the shapes ``like``.
    - ``like``: the shapes of a state.
    - ``chunk``: ``chunk.program`` runs a chunk and donates the state that it is given.
    - ``compile_seconds``: the seconds that tracing and compiling took.
    - ``differs``: which leaves of a state differ between the shards of an agent (`splitting.Agent`).
    - ``sent_bytes``: the bytes that a device sends to others in an iteration (`splitting.sent`).
    - ``select``: the selection of population-based training (`selecting.compile_selected`); None: there is none.
    - ``data``: returns the datasets that all members share (`Setup.data`), of which each device holds one copy.
    - ``stream``: the dataset that the host streams instead; None: there is none. ``chunk`` then runs an iteration.
    - ``show``: ``show(given, state)`` shows that dataset to the learners before the first iteration.
    """

    init: jax.stages.Compiled
    like: TrainState
    chunk: planning.Compiled
    compile_seconds: float
    differs: PyTree = False
    sent_bytes: float = 0.0
    select: jax.stages.Compiled | None = None
    data: Callable[[], PyTree] = lambda: None
    stream: Stream | None = None
    show: Callable[[PyTree, TrainState], TrainState] | None = None

    @property
    def batch_size(self) -> int:
        """The number of members that are trained at once."""
        return self.chunk.batch_size

    @property
    def peak_bytes(self) -> int:
        """The most memory that the training holds, in bytes, over all devices together."""
        devices = len(self.chunk.layout.devices)
        selecting = planning.program_bytes(self.select) * devices if self.select else 0
        return max(self.chunk.peak_bytes, selecting)

    def begin(self, members: population.Members, step: checkpoint.CheckpointStep | None = None) -> TrainState:
        """Makes the state of a batch of members, on the devices, filled up to the rows of the program.

        It is the one at the start or, if there is a ``step``, that of the checkpoint.

        Raises:
            ConfigError: The checkpoint is of other members.
        """
        layout = self.chunk.layout
        if step is None:
            placed = layouts.place(members, layout)
            state = self.init(placed, self.data())
            return self.show(placed.given, state) if self.show else state
        return saved(step, members.size, self.like, layout, self.differs)

    def chunks(
        self, members: population.Members, state: TrainState, done: int, num_iterations: int, every: int = 0
    ) -> Iterator[Chunk]:
        """Trains a batch of members by `run_loop.advance` until ``num_iterations`` are ``done``, yielding each `Chunk`.

        Their state has at least as many rows as there are members; further rows fill the program up. The metrics of a
        chunk are ``[iterations, members]``, on the host. If ``every`` is not 0, a chunk also ends at each multiple of
        so many iterations.
        """
        size, data = members.size, self.data()
        placed = layouts.place(members, self.chunk.layout)
        advancing = lambda state, length: self.chunk.program(placed.given, state, data, length)
        if self.stream:
            one = lambda given, state: self.chunk.program(given, state, data, np.int32(1))
            advancing = streaming.advancing(one, self.stream, self.chunk.layout, placed.given, state)
        paced = run_loop.advance(
            advancing, state, done, num_iterations, capacity=CAPACITY, chunk_seconds=CHUNK_SECONDS, every=every
        )
        for chunk in paced:
            fetched = processes.fetch(chunk.metrics) if processes.count() > 1 else chunk.metrics
            metrics = {name: _rows(values, chunk.length)[:size].T for name, values in fetched.items()}
            yield chunk._replace(metrics=metrics)

    def under_way(self) -> tuple[int, str]:
        """Returns that of the unfinished chunk nothing is known."""
        return 0, ""

    def close(self) -> None:
        """Does nothing, because nothing is open."""


def saved(
    step: checkpoint.CheckpointStep, size: int, like: TrainState, layout: population.Layout, differs: PyTree = False
) -> TrainState:
    """Reads the state of a batch of ``size`` members from a checkpoint, onto the devices of a layout.

    It is filled up to the shapes ``like``; ``differs`` is as in `RunProgram`.

    Raises:
        ConfigError: The checkpoint is of other members.
    """
    shardings = layout.shardings(jax.tree.broadcast(differs, like))
    of_size = lambda x, place: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype, sharding=place)
    rows = jax.tree.map(of_size, like, shardings)
    return checkpoint.read(step, rows, lambda array, leaf: layouts.place(array, layout, leaf.sharding))


def compile_program(
    make_trainer: Callable[..., Trainer],
    members: population.Members,
    batch_size: int | str = "auto",
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
    stage: Callable[[str], None] = lambda name: None,
    algo: str = "",
    split: Split = WHOLE,
    resting: bool = False,
    data: PyTree = None,
    stream: Stream | None = None,
) -> RunProgram:
    """Compiles the trainings of a population into one program for any number of iterations.

    ``make_trainer(**given, data=data)`` makes the trainer of one of the members ``[P]``, which share ``data``: each
    device has one copy, an argument of the programs; None: there is none. The program that makes the first state is
    compiled beside the other, in another thread. ``stage`` is called with the name of each stage that begins after
    tracing. ``algo`` is the name of the algorithm, for `errors.own_code`, and ``split`` says how agents are cut into
    shards. If it is ``resting``, nothing is computed of members that have stopped (`loops.stopping`), where they are
    computed one after another; their metrics are then zeros. ``stream`` is that of the trainers, whose samples the
    host reads; None: there is none. The other arguments are those of `population.train_population`.

    Raises:
        ConfigError: The user's own code raised an error (`errors.own_code`), while tracing and before compiling; or
            there is a ``stream`` and no CPU to draw on.
        planning.DoesNotFit: The program does not fit into memory.
    """
    start = time.perf_counter()
    if stream:
        streaming.drawing()
    one, make_trainer = trees.take(members, 0), streaming.fed(make_trainer) if stream else make_trainer
    with own_code(algo):
        agent = splitting.agent(make_trainer, one, split.cut)
        planning.check_state(agent.whole, one, data, devices=devices)
    first = (devices or jax.devices())[0]
    options = (backend.compiler_options() or {}) | split.compiler_options(first)
    starts: list[Future[jax.stages.Compiled]] = []

    def lower(size: int) -> tuple[jax.stages.Lowered, population.Layout]:
        layout = population.layout(size, devices, lanes, split.devices)
        with own_code(algo):
            init, chunk = _traced(agent, members, data, layout, resting and layout.lanes == 1, stream)
        stage("compiling")
        starts.append(beside.submit(init.lower().compile, options))
        return chunk.lower(), layout

    advice = "cut num_envs or what else makes an agent large"
    with ThreadPoolExecutor(1) as beside:
        chunk = planning.compile_to_fit(lower, members.size, batch_size, advice, options, data)
        stage("compiling the start")
        init = starts[-1].result()
    if data is not None:  # the start shows all of them to the learner, with whole stacks of frames
        planning.check_program(init, chunk.layout.devices, advice, data)
    sent = splitting.sent(agent.meetings, split)
    placed = functools.cache(lambda: processes.put(data, chunk.layout.everywhere))
    seconds = time.perf_counter() - start
    show = functools.partial(streaming.shown, stream, make_trainer, chunk.layout) if stream else None
    return RunProgram(init, init.out_info, chunk, seconds, agent.differs, sent, data=placed, stream=stream, show=show)


def _traced(
    agent: splitting.Agent,
    members: population.Members,
    data: PyTree,
    layout: population.Layout,
    resting: bool,
    stream: Stream | None,
) -> tuple[jax.stages.Traced, jax.stages.Traced]:
    """Traces the program that makes the states of members, and the one that trains them for a chunk.

    Both keep all of the ``data`` as arguments, which lie on the devices also where a learner does not read them.
    """

    def chunk_of(given, state, data, length):
        length = jnp.where(state.stopping.stopped, 0, length) if resting else length
        return agent.chunk(given, state, length, 1 if stream else CAPACITY, data)

    given = trees.shapes(trees.fill(members, layout.size), layout.sharding)
    shared = trees.shapes(data, layout.everywhere)
    begin = spread(lambda m, _, data: ((), agent.init(m, data)), layout, (False, agent.differs))
    places = layout.shardings(agent.differs)  # said, because XLA gives every device the whole of an empty array
    keep = data is not None
    initial = jax.jit(lambda members, data: begin(members, (), data)[1], out_shardings=places, keep_unused=keep)
    init = initial.trace(given, shared)
    states = jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        init.out_info,
        layout.shardings(jax.tree.broadcast(agent.differs, init.out_info)),
    )
    chunk = spread(chunk_of, layout, (agent.differs, False))
    of_members = lambda x: jax.ShapeDtypeStruct((layout.size, *x.shape), x.dtype, sharding=layout.sharding)
    more = {streaming.SAMPLES: jax.tree.map(of_members, stream.like)} if stream else {}
    program = jax.jit(chunk, donate_argnums=1, out_shardings=(places, layout.sharding), keep_unused=keep)
    return init, program.trace({**given.given, **more}, states, shared, np.int32(0))


def _rows(values: jax.Array | np.ndarray, length: int) -> np.ndarray:
    """Copies the first ``length`` columns of an array ``[P, capacity]`` to the host.

    It copies part by part, so that no CPU device copies the rest.
    """
    if isinstance(values, np.ndarray):
        return values[:, :length]
    local = [part for part in values.addressable_shards if part.replica_id == 0]
    parts = sorted(local, key=lambda part: part.index[0].start or 0)
    return np.concatenate([np.asarray(part.data)[:, :length] for part in parts])
