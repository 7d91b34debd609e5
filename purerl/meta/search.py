"""A search from its directory to its artefact: generation after generation, with a log, checkpoints and resuming.

What a search computes follows from its description and the number of generations alone. On CPU no bit depends on where
it was cut into chunks, saved, killed and resumed.
"""

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from purerl import backend, interrupts, loops, processes, trees
from purerl.display import progress
from purerl.errors import ConfigError, own_code
from purerl.learned import artefacts
from purerl.meta import evolution
from purerl.meta.description import Description, Setup
from purerl.population import arithmetic, devices, planning
from purerl.population.layouts import AXIS
from purerl.runs.describing import config_file, machine
from purerl.runs.describing.machine import machine_facts
from purerl.runs.describing.run_directory import CHECKPOINTS, claim, hold, resume_command
from purerl.runs.running import forecast, resuming, run_loop
from purerl.runs.running.resuming import Resumed
from purerl.runs.running.run_loop import Chunk, Run
from purerl.runs.running.train import EXIT_DIVERGED, place
from purerl.store import checkpoint, log, trusted_modules, writing
from purerl.store.checkpoint import saver
from purerl.store.log import Log
from purerl.types import PyTree

CAPACITY = 64
"""The most generations of a chunk, and therefore the rows of metrics that the device holds."""
CHUNK_SECONDS = 1.0
"""The seconds that a chunk should take if a generation takes less. So long the progress bar, Ctrl-C and a time budget
wait."""
LOG = "generations.jsonl"
OF_AN_ARTEFACT = "report.json", "closed.json", "closed-report.json", "network.json", "network-report.json"
"""Files that describe the artefact in the directory, and none that replaces it."""
FILES = (
    config_file.NAME,
    LOG,
    "summary.json",
    artefacts.NAME,
    "curve.png",
    "learned.png",
    *OF_AN_ARTEFACT,
    CHECKPOINTS,
)
PATIENCE = 10
"""The number of generations in a row without a training that has a fitness after which a search ends."""


class SearchProgram(NamedTuple):
    """A compiled search. ``chunk(state, length) -> (state, metrics [CAPACITY])`` donates the state that it is given."""

    init: Any
    chunk: jax.stages.Compiled
    like: PyTree
    everywhere: NamedSharding
    peak_bytes: int
    seconds: float

    def begin(self, seed: int) -> PyTree:
        """Makes the state at the start of a search."""
        return self.init(processes.put(jax.random.key(seed), self.everywhere))


class Progress(NamedTuple):
    """The point from which a search goes on: its state, its finished generations, and the seconds spent before."""

    state: PyTree
    done: int
    seconds: float


def compile_program(
    setup: Setup, capacity: int = CAPACITY, stage: Callable[[str], None] = lambda name: None, algo: str = ""
) -> SearchProgram:
    """Compiles the generations of a search, one program for any number of them.

    Args:
        setup: The search.
        capacity: The most generations of a chunk.
        stage: Called with the name of the stage that begins after tracing.
        algo: The name of the algorithm, for `errors.own_code`.

    Raises:
        planning.DoesNotFit: The program does not fit into the devices' memory.
        ConfigError: Several processes would compute a search by meta-gradients; and in the cases of `errors.own_code`.
    """
    if processes.count() > 1 and not setup.evolution.devices:
        raise ConfigError("strategy = 'meta_gradient': runs on one device; omit --processes")
    start, used = time.perf_counter(), setup.evolution.devices or jax.local_devices()[:1]
    everywhere = NamedSharding(jax.sharding.Mesh(np.array(used), (AXIS,)), PartitionSpec())
    init = jax.jit(setup.evolution.init, out_shardings=everywhere, compiler_options=backend.compiler_options())
    program = jax.jit(loops.chunk(setup.evolution, capacity), donate_argnums=0, out_shardings=everywhere)
    with own_code(algo):
        like = trees.shapes(jax.eval_shape(setup.evolution.init, jax.random.key(0)), everywhere)
        traced = program.trace(like, jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere))
    stage("compiling")
    chunk = traced.lower().compile(backend.compiler_options())
    planning.check_program(chunk, used, "give fewer --lanes, or cut num_envs or what else makes an agent large")
    return SearchProgram(
        init, chunk, like, everywhere, planning.program_bytes(chunk) * len(used), time.perf_counter() - start
    )


def search(description: Description, options: Any) -> int:
    """Runs a search, writes its directory and returns the exit code.

    Raises:
        ConfigError: The search or its directory is not valid; before anything is compiled or written.
    """
    name = re.sub("[^A-Za-z0-9.]+", "-", f"{description.socket}-{description.algo}")
    directory = place(options, name)
    run = _run(description, options, directory)
    with hold(directory, FILES, overwrite=options.overwrite):
        program = _compile(run)
        run_loop.confirm(run, _expected_seconds(run, program))
        if processes.is_first():
            claim(directory, FILES)
            config_file.write(directory, "evolve", description, options)
            trusted_modules.remember(directory, [description.algo, description.socket, *description.envs])
        return _search(run, program, Progress(program.begin(description.seed), 0, 0.0))


def resume(description: Description, options: Any, resumed: Resumed) -> int:
    """Resumes a search, in the bits of one that was not interrupted, and returns the exit code.

    Args:
        description: The description of the search, with the changes of ``resumed``.
        options: The options of the search, with the changes of ``resumed``.
        resumed: The directory, and what is changed.

    Raises:
        ConfigError: There is nothing valid to resume from; before anything is written.
    """
    directory = resumed.directory
    run = _run(description, options, directory)
    with hold(directory, FILES, resume=True):
        folder = directory / CHECKPOINTS
        resuming.checked(resumed, folder, folder)
        step = resuming.newest(folder, run.console, strict=resumed.strict)
        done = step.number if step else 0
        if done > description.generations:
            raise ConfigError(f"generations = {description.generations}: the search has already done {done}")
        program = _compile(run)
        if step is None:
            state, spent = program.begin(description.seed), 0.0
        else:
            put = lambda array, leaf: processes.put(array, program.everywhere)
            state, spent = checkpoint.read(step, program.like, put), step.about["seconds"]
        resuming.agreed(done)
        if processes.is_first():
            log.cut(directory / LOG, lambda row: row.get("generation", math.inf) <= done, done)
            resuming.begin(resumed, description, options, [step] if step else [], run.console)
        processes.gathered(None)
        return _search(run, program, Progress(state, done, spent))


def _run(description: Description, options: Any, directory: Path) -> Run:
    """Makes the `Run` of a search, on the devices that the options name."""
    setup = Setup.of(description, devices.chosen(options.num_devices))
    return Run(description, setup, options, directory, progress.console())


def _compile(run: Run) -> SearchProgram:
    """Compiles the program of a search, with a line about it."""
    total, digest = run.setup.frames * run.description.generations, config_file.digest(run.description._asdict())
    with progress.waiting(run.console, "tracing", machine.last_compile_time(digest)) as stages:

        def stage(name: str) -> None:
            progress.say(run.console, f"{total:,} frames in total, {run.setup.frames:,} per generation: compiling ...")
            stages(name)

        program = compile_program(run.setup, stage=stage, algo=run.description.algo)
    if processes.is_first():
        machine.note_compile_time(digest, program.seconds)
    progress.say(run.console, f"compiled in {program.seconds:.1f} s")
    return program


def _expected_seconds(run: Run, program: SearchProgram) -> float:
    """Estimates the seconds of a search."""
    generations, evolution = run.description.generations, run.setup.evolution
    flops = lambda: arithmetic.flops(evolution.step, program.like) * generations / program.everywhere.mesh.devices.size
    return forecast.expected(planning.census(program.chunk, generations), flops)


def _search(run: Run, program: SearchProgram, so_far: Progress) -> int:
    """Runs a search, writes its results on the first process, and returns the exit code."""
    description, directory, setup = run.description, run.directory, run.setup
    first = so_far.done
    with interrupts.deferred() as interrupted:
        searching = Searching(run, program, so_far, interrupted)
        with searching.opened():
            run_loop.follow(searching, searching.log, searching.save)
            searching.checkpoint()
        seconds, over = searching.clock.seconds(), run_loop.is_interrupted(interrupted)
    done, mean = searching.done, processes.fetch(setup.evolution.mean(searching.state))
    failed = searching.barren >= min(PATIENCE, max(1, done))
    if not processes.is_first():
        return 128 + interrupted[0] if over else EXIT_DIVERGED if failed else 0
    status = "completed" if done == description.generations else "stopped"
    if over or failed:
        status = "interrupted" if over else "diverged"
    last = list(log.rows(directory / LOG))[-1:]
    evidence = {"generations": done, "frames": done * setup.frames, "status": status}
    evidence["fitness"] = last[0]["fitness"] if last else None
    card, measured = {**description._asdict(), **evidence}, {"seconds": seconds, **machine_facts()}
    card["initial"] = description.initial.get("sha256", "")
    artefact = artefacts.of_socket(description.socket, mean, card, measured, description.settings)
    if done > first or not (directory / artefacts.NAME).exists():
        for name in OF_AN_ARTEFACT:
            (directory / name).unlink(missing_ok=True)
        artefacts.save(directory / artefacts.NAME, artefact)
    writing.write_json(directory / "summary.json", {**card, **measured, "compile_seconds": program.seconds})
    with progress.picturing(directory):
        _draw(directory, artefact, setup.config)
    fitness = "" if evidence["fitness"] is None else f"; fitness {evidence['fitness']:.1f}"
    progress.say(run.console, f"{status}: {done:,} generations, {done * setup.frames:,} frames{fitness}; {directory}")
    if over:
        progress.say(run.console, f"resume with: {resume_command(directory)}")
        return 128 + interrupted[0]
    if failed:
        progress.say(
            run.console, "no training of the last generations has a fitness: all diverged, or no episode ended"
        )
    return EXIT_DIVERGED if failed else 0


class Searching:
    """A search that goes on: its state, and what happens after each chunk of generations.

    It ends when all are done, when no training has had a fitness for `PATIENCE` of them, when the time is up, or when a
    signal is in ``interrupted``.
    """

    def __init__(self, run: Run, program: SearchProgram, so_far: Progress, interrupted: list[int]):
        self.run, self.interrupted = run, interrupted
        self.state, self.done, self.first = so_far.state, so_far.done, so_far.done
        self.barren = _barren(run.directory)  # generations in a row without a fitness
        self.clock, self.until_save = run_loop.Clock(so_far.seconds), run_loop.Timer(run.options.checkpoint_seconds)
        self.digest, total = config_file.digest(run.description._asdict()), run.description.generations
        self.paced = run_loop.advance(
            program.chunk, self.state, self.done, total, capacity=CAPACITY, chunk_seconds=CHUNK_SECONDS
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens the log, the saver and the progress report."""
        left = self.run.description.generations - self.first
        with (
            Log(self.run.directory / LOG) if processes.is_first() else contextlib.nullcontext() as self.rows,
            saver() as self.saving,
            progress.show(self.run.console, self.run.setup.frames * max(1, left)) as self.report,
        ):
            yield

    def goes_on(self) -> bool:
        """Tells whether nothing has ended the search."""
        budget = self.run.options.budget_seconds
        if run_loop.is_interrupted(self.interrupted):
            return False
        over = processes.from_first(bool(budget) and self.clock.seconds() >= budget)
        return not over and self.barren < PATIENCE

    def advance(self) -> Chunk | None:
        """Runs a chunk of generations; None: all are done."""
        return next(self.paced, None)

    def log(self, chunk: Chunk) -> None:
        """Logs and reports a chunk."""
        frames, lines = self.run.setup.frames, []
        columns = {name: values[: chunk.length] for name, values in processes.fetch(chunk.metrics).items()}
        for i in range(chunk.length):
            row = {"generation": self.done + i + 1, "frames": (self.done + i + 1) * frames}
            lines.append(json.dumps(writing.finite(row | {k: float(v[i]) for k, v in columns.items()})) + "\n")
            self.barren = 0 if columns["alive"][i] else self.barren + 1
        if self.rows:
            self.rows.write(lines)
        self.state, self.done = chunk.state, chunk.done
        self.report((self.done - self.first) * frames, columns["fitness"][-1:], 1)

    def save(self, chunk: Chunk) -> None:
        """Saves a checkpoint, if it is time."""
        self.saving.check()
        if self.until_save.is_due():
            self.checkpoint()
            self.until_save.restart()

    def checkpoint(self) -> None:
        """Saves a checkpoint."""
        if self.done:
            frames, seconds = self.done * self.run.setup.frames, self.clock.seconds()
            about = {"frames": frames, "seconds": seconds, "config_sha256": self.digest}
            keeping = {"keep": self.run.options.keep, "logs": (self.rows,) if self.rows else ()}
            self.saving.save(self.run.directory / CHECKPOINTS, self.done, self.state, about, **keeping)


def _barren(directory: Path) -> int:
    """Counts the last generations in a row in which no training had a fitness."""
    alive = [bool(row["alive"]) for row in log.rows(directory / LOG)]
    return len(alive) if not any(alive) else alive[::-1].index(True)


def _draw(directory: Path, artefact: artefacts.Artefact, config: Any) -> None:
    """Draws the fitness over frames, of several tasks in a panel each, and the learned function if it has a plot."""
    from purerl.display import plots
    from purerl.meta import pictures

    if rows := list(log.rows(directory / LOG)):
        line = lambda name: np.array([[np.nan if row[name] is None else row[name] for row in rows]])
        names = [name for name in rows[0] if name.startswith(evolution.OF_TASK)]
        tasks = {name.removeprefix(evolution.OF_TASK): {"mean": line(name)} for name in names}
        whole = {name: line(name) for name in ("fitness_worst", "fitness", "fitness_best")}
        x = [row["frames"] for row in rows]
        figure = plots.panels_figure(x, tasks or {artefact.socket: whole}, ("frames", "fitness"))
        plots.save(directory / "curve.png", figure)
    pictures.draw(directory / "learned.png", artefact, config)
