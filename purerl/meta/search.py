"""A search from its directory to its artefact: generation after generation, with a log, checkpoints and resuming.

What a search computes follows from its description and the number of generations alone. On CPU no bit depends on where
it was cut into chunks, saved, killed and resumed.
"""

import contextlib
import json
import math
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
from purerl.meta.description import SearchDescription
from purerl.population import arithmetic, devices, planning
from purerl.population.layouts import AXIS
from purerl.runs.describing import config_file
from purerl.runs.describing.machine import machine_facts
from purerl.runs.describing.run_directory import CHECKPOINTS, resume_command
from purerl.runs.running import forecast, run_loop
from purerl.runs.running.run import EXIT_DIVERGED, ResumePoint, Run, exit_code, place
from purerl.runs.running.run_loop import Chunk
from purerl.store import checkpoint, log, writing
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
    compile_seconds: float

    @property
    def batch_size(self) -> int:
        """The number of searches that run at once."""
        return 1

    def begin(self, seed: int, step: checkpoint.CheckpointStep | None = None) -> PyTree:
        """Makes the state of a search: at a checkpoint, or without one at the start."""
        put = lambda array, leaf: processes.put(array, self.everywhere)
        return checkpoint.read(step, self.like, put) if step else self.init(put(jax.random.key(seed), None))


def compile_program(
    search: evolution.Evolution,
    capacity: int = CAPACITY,
    stage: Callable[[str], None] = lambda name: None,
    algo: str = "",
) -> SearchProgram:
    """Compiles the generations of a search, one program for any number of them.

    Args:
        search: The search.
        capacity: The most generations of a chunk.
        stage: Called with the name of the stage that begins after tracing.
        algo: The name of the algorithm, for `errors.own_code`.

    Raises:
        planning.DoesNotFit: The program does not fit into the devices' memory.
        ConfigError: Several processes would compute a search by meta-gradients; and in the cases of `errors.own_code`.
    """
    if processes.count() > 1 and not search.devices:
        raise ConfigError("strategy = 'meta_gradient': runs on one device; omit --processes")
    start, used = time.perf_counter(), search.devices or jax.local_devices()[:1]
    everywhere = NamedSharding(jax.sharding.Mesh(np.array(used), (AXIS,)), PartitionSpec())
    init = jax.jit(search.init, out_shardings=everywhere, compiler_options=backend.compiler_options())
    program = jax.jit(loops.chunk(search, capacity), donate_argnums=0, out_shardings=everywhere)
    with own_code(algo):
        like = trees.shapes(jax.eval_shape(search.init, jax.random.key(0)), everywhere)
        traced = program.trace(like, jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere))
    stage("compiling")
    chunk = traced.lower().compile(backend.compiler_options())
    planning.check_program(chunk, used, "give fewer --lanes, or cut num_envs or what else makes an agent large")
    return SearchProgram(
        init, chunk, like, everywhere, planning.program_bytes(chunk) * len(used), time.perf_counter() - start
    )


class SearchRun(Run):
    """A run that searches: its setup is an `Evolution`."""

    FILES = FILES
    LENGTH, RESULT = "generations", artefacts.NAME

    @classmethod
    def of(cls, description: SearchDescription, options: Any, directory: Path) -> "SearchRun":
        """Makes the run, on the devices that ``options`` name."""
        made = description.make_evolution(devices.chosen(options.num_devices))
        return cls(description, made, options, directory, progress.console())

    def folder(self, batch: int) -> Path:
        """Returns the folder of the checkpoints."""
        return self.directory / CHECKPOINTS

    def check_length(self, done: int) -> None:
        """Raises `ConfigError` if the search has ``done`` more generations than it should in all."""
        if done > self.description.generations:
            asked = f"generations = {self.description.generations}"
            raise ConfigError(f"{asked}: the search has already done {done}")

    def announce(self) -> None:
        """Prints what is about to compile."""
        frames, total = self.setup.frames, self.setup.frames * self.description.generations
        progress.say(self.console, f"{total:,} frames in total, {frames:,} per generation: compiling ...")

    def compile(self, batch_size: int | str, stage: Callable[[str], None]) -> SearchProgram:
        """Compiles the program."""
        return compile_program(self.setup, stage=stage, algo=self.description.algo)

    def expected_seconds(self, program: SearchProgram) -> float:
        """Estimates the seconds of the search."""
        generations, used = self.description.generations, program.everywhere.mesh.devices.size
        flops = lambda: arithmetic.flops(self.setup.step, program.like) * generations / used
        return forecast.expected(planning.census(program.chunk, generations), flops)

    def cut_logs(self, batch_size: int, done: list[int]) -> None:
        """Cuts the log to the generations that the checkpoint counts."""
        log.cut(self.directory / LOG, lambda row: row.get("generation", math.inf) <= done[0], done[0])

    def carry_out(self, program: SearchProgram, so_far: ResumePoint) -> int:
        """Runs the search, writes its results on the first process, and returns the exit code."""
        with interrupts.deferred() as interrupted:
            searching = Searching(self, program, so_far, interrupted)
            with searching.opened():
                run_loop.follow(searching, searching.log, searching.save)
                searching.checkpoint()
            seconds = searching.clock.seconds()
            received = interrupted if run_loop.is_interrupted(interrupted) else []
        mean = processes.fetch(self.setup.mean(searching.state))
        code = exit_code(received, searching.is_barren())
        if processes.is_first():
            _write(searching, code, mean, {"seconds": seconds, **machine_facts()})
        return code


def search(description: SearchDescription, options: Any) -> int:
    """Runs a search, writes its directory and returns the exit code.

    Raises:
        ConfigError: As for `Run.begin`.
        DoesNotFit: As for `Run.begin`.
    """
    return SearchRun.of(description, options, place(options, description.name)).begin("evolve")


def _write(searching: "Searching", code: int, mean: PyTree, measured: dict[str, Any]) -> None:
    """Writes the artefact, the summary and the pictures of a search that has ended with an exit code."""
    run, done, directory = searching.run, searching.done, searching.run.directory
    description, frames = run.description, done * run.setup.frames
    finished = "completed" if done == description.generations else "stopped"
    status = {0: finished, EXIT_DIVERGED: "diverged"}.get(code, "interrupted")
    last = list(log.rows(directory / LOG))[-1:]
    fitness = last[0]["fitness"] if last else None
    evidence = {"generations": done, "frames": frames, "status": status, "fitness": fitness}
    card = {**description.fields, **evidence, "initial": description.initial.get("sha256", "")}
    artefact = artefacts.of_socket(description.socket, mean, card, measured, description.settings)
    if done > searching.first or not (directory / artefacts.NAME).exists():
        for name in OF_AN_ARTEFACT:
            (directory / name).unlink(missing_ok=True)
        artefacts.save(directory / artefacts.NAME, artefact)
    summary = {**card, **measured, "compile_seconds": searching.program.compile_seconds}
    writing.write_json(directory / "summary.json", summary)
    with progress.picturing(directory):
        _draw(directory, artefact, description.made_config)
    words = "" if fitness is None else f"; fitness {fitness:.1f}"
    progress.say(run.console, f"{status}: {done:,} generations, {frames:,} frames{words}; {directory}")
    if status == "interrupted":
        progress.say(run.console, f"resume with: {resume_command(directory)}")
    elif status == "diverged":
        barren = "no training of the last generations has a fitness: all diverged, or no episode ended"
        progress.say(run.console, barren)


class Searching:
    """A search that goes on: its state, and what happens after each chunk of generations.

    It ends when all are done, when no training has had a fitness for `PATIENCE` of them, when the time is up, or when a
    signal is in ``interrupted``.
    """

    def __init__(self, run: SearchRun, program: SearchProgram, so_far: ResumePoint, interrupted: list[int]):
        self.run, self.program, self.interrupted = run, program, interrupted
        [self.done], [step] = so_far.done, so_far.steps
        self.state, self.first = program.begin(run.description.seed, step), self.done
        self.barren = _barren(run.directory)  # generations in a row without a fitness
        self.clock, self.until_save = run_loop.Clock(so_far.seconds), run_loop.Timer(run.options.checkpoint_seconds)
        total = run.description.generations
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

    def is_barren(self) -> bool:
        """Tells whether no training has a fitness, in `PATIENCE` generations or in all if there were fewer."""
        return self.barren >= min(PATIENCE, max(1, self.done))

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
            about = {"frames": frames, "seconds": seconds, "config_sha256": self.run.description.digest}
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
