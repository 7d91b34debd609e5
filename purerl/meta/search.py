"""A search from its directory to its artefact: generation after generation, watched, saved, interrupted and resumed.

What a search computes follows from its description and the number of generations alone. Where it was cut into chunks,
saved, killed and resumed makes no difference to any bit on CPU.
"""

import json
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from rich.console import Console

from purerl import loops, population, trees
from purerl.display import progress
from purerl.errors import ConfigError
from purerl.learned import artefacts
from purerl.meta.description import Description, Setup
from purerl.population import planning
from purerl.runs import session
from purerl.runs.facts import machine_facts
from purerl.runs.train import EXIT_DIVERGED
from purerl.store import checkpoint, json_files
from purerl.types import PyTree

CAPACITY = 64
"""Most generations of a chunk, and so the rows of metrics that the device holds."""
CHUNK_SECONDS = 1.0
"""What a chunk should take: how long the progress bar, Ctrl-C and a fixed time wait, if a generation takes less."""
CHECKPOINTS = "checkpoints"
LOG = "generations.jsonl"
OF_AN_ARTEFACT = "report.json", "closed.json", "closed-report.json"
"""What tells of the artefact that lies there, and of no later one."""
FILES = (
    "config.json",
    LOG,
    "summary.json",
    artefacts.NAME,
    "curve.png",
    "learned.png",
    *OF_AN_ARTEFACT,
    CHECKPOINTS,
)
PATIENCE = 10
"""Generations in a row in which no training has a fitness, after which a search ends."""
SOFT = ("generations",)
"""What a resumed search may change."""


class Program(NamedTuple):
    """A search, compiled: ``chunk(state, length) -> (state, metrics [CAPACITY])`` donates the state it is given."""

    init: Any
    chunk: jax.stages.Compiled
    like: PyTree
    peak_bytes: int
    seconds: float


def compile_program(setup: Setup, capacity: int = CAPACITY) -> Program:
    """Compiles the generations of a search, one program for any number of them. Raises `planning.DoesNotFit`."""
    start, devices = time.perf_counter(), setup.evolution.devices or jax.devices()[:1]
    everywhere = NamedSharding(jax.sharding.Mesh(np.array(devices), (population.AXIS,)), PartitionSpec())
    init = jax.jit(setup.evolution.init, out_shardings=everywhere)
    like = trees.shapes(jax.eval_shape(setup.evolution.init, jax.random.key(0)), everywhere)
    program = jax.jit(loops.chunk(setup.evolution, capacity), donate_argnums=0, out_shardings=everywhere)
    chunk = program.lower(like, jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere)).compile()
    planning.check_program(chunk, devices, "give fewer --lanes, or cut num_envs or what else makes an agent large")
    return Program(init, chunk, like, planning.held(chunk) * len(devices), time.perf_counter() - start)


def search(description: Description, options: Any) -> int:
    """Runs a search, or goes on with one, and writes its directory. Returns the exit code.

    Raises `ConfigError` before anything compiles or is written.
    """
    console = Console(stderr=True)
    name = re.sub("[^A-Za-z0-9.]+", "-", f"{description.socket}-{description.algo}")
    directory = Path(options.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
    if options.resume and options.overwrite:
        raise ConfigError("overwrite: a search that goes on replaces nothing; give it or resume")
    if options.resume:
        _check_resumable(directory, description)
    with session.hold(directory, FILES, overwrite=options.overwrite, resume=options.resume):
        checkpoint.clear(directory / CHECKPOINTS)
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        json_files.write_json(directory / "config.json", {**description._asdict(), "command": command})
        return _search(description, options, directory, console)


def _check_resumable(directory: Path, description: Description) -> None:
    """Raises `ConfigError` that names every field in which a saved search differs from ``description``."""
    saved, given = (
        json_files.read_json(directory / "config.json"),
        json.loads(json.dumps(json_files.finite(description._asdict()))),
    )
    if not isinstance(saved, dict):
        raise ConfigError(f"{directory / 'config.json'}: not the description of a search")
    before, now = (_flat({k: v for k, v in fields.items() if k not in (*SOFT, "command")}) for fields in (saved, given))
    found = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    lines = [f"{name} = {now.get(name)!r}: the search in {str(directory)!r} has {before.get(name)!r}" for name in found]
    if lines:
        raise ConfigError("\n".join(lines))


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of fields by their names alone; those of a strategy with its name before them."""
    nested = {name: value for name, value in fields.items() if isinstance(value, dict)}
    inner = {
        ("" if name == "config" else f"{name}.") + k: v for name, value in nested.items() for k, v in value.items()
    }
    return {name: value for name, value in fields.items() if name not in nested} | inner


def _search(description: Description, options: Any, directory: Path, console: Console) -> int:
    setup, generations = Setup.of(description), description.generations
    total = setup.frames * generations
    progress.say(console, f"{total:,} frames in all, {setup.frames:,} a generation: compiling ...")
    program = compile_program(setup)
    progress.say(console, f"compiled in {program.seconds:.1f} s")
    state, first, spent = _begin(setup, program, description, options.resume, directory)
    done, barren = first, _barren(directory)
    start = saved = time.perf_counter()
    elapsed = lambda: spent + time.perf_counter() - start  # noqa: E731
    over = lambda: bool(options.budget_seconds) and elapsed() >= options.budget_seconds  # noqa: E731

    def save() -> None:
        fields = {"generation": done, "frames": done * setup.frames, "seconds": elapsed()}
        if done not in checkpoint.steps(directory / CHECKPOINTS):
            about = {**fields, "description": description._asdict()}
            checkpoint.save(directory / CHECKPOINTS, done, state, json_files.finite(about))

    save()
    paced = session.advance(program.chunk, state, done, generations, capacity=CAPACITY, chunk_seconds=CHUNK_SECONDS)
    with (
        session.interrupts() as interrupted,
        open(directory / LOG, "a") as log,
        progress.show(console, setup.frames * max(1, generations - first)) as report,
    ):
        while not interrupted and not over() and barren < PATIENCE and (chunk := next(paced, None)):
            state = chunk.state
            rows = {name: values[: chunk.length] for name, values in chunk.metrics.items()}
            for i in range(chunk.length):
                row = {"generation": done + i + 1, "frames": (done + i + 1) * setup.frames}
                log.write(json.dumps(json_files.finite(row | {k: float(v[i]) for k, v in rows.items()})) + "\n")
                barren = 0 if rows["alive"][i] else barren + 1
            done = chunk.done
            report((done - first) * setup.frames, float(rows["fitness"][-1]))
            if time.perf_counter() - saved >= options.checkpoint_seconds:
                session.flush(log)
                save()
                saved = time.perf_counter()
        session.flush(log)
        save()
    failed = barren >= min(PATIENCE, max(1, done))
    status = "completed" if done == generations else "stopped"
    if interrupted or failed:
        status = "interrupted" if interrupted else "diverged"
    last = _rows(directory)[-1:]
    evidence = {"generations": done, "frames": done * setup.frames, "status": status}
    evidence["fitness"] = last[0]["fitness"] if last else None
    card, measured = {**description._asdict(), **evidence}, {"seconds": elapsed(), **machine_facts()}
    artefact = artefacts.of_socket(description.socket, setup.evolution.mean(state), card, measured)
    if done > first or not (directory / artefacts.NAME).exists():
        for name in OF_AN_ARTEFACT:
            (directory / name).unlink(missing_ok=True)
        artefacts.save(directory / artefacts.NAME, artefact)
    json_files.write_json(directory / "summary.json", {**card, **measured, "compile_seconds": program.seconds})
    _draw(directory, artefact, setup.config)
    fitness = "" if evidence["fitness"] is None else f"; fitness {evidence['fitness']:.1f}"
    progress.say(console, f"{status}: {done:,} generations, {done * setup.frames:,} frames{fitness}; {directory}")
    if interrupted:
        progress.say(console, f"go on with the same command and --resume --out {directory}")
        return 128 + interrupted[0]
    if failed:
        progress.say(console, "no training of the last generations had a fitness: all died, or no episode ended")
    return EXIT_DIVERGED if failed else 0


def _rows(directory: Path) -> list[dict[str, Any]]:
    """The log, generation by generation."""
    return [json.loads(line) for line in (directory / LOG).read_text().splitlines()]


def _barren(directory: Path) -> int:
    """How many of the last generations in a row had no training with a fitness."""
    alive = [bool(row["alive"]) for row in _rows(directory)]
    return len(alive) if not any(alive) else alive[::-1].index(True)


def _begin(
    setup: Setup, program: Program, description: Description, resume: bool, directory: Path
) -> tuple[PyTree, int, float]:
    """The state to go on from, its generation, and the seconds that were spent before; the log ends there."""
    if not resume:
        (directory / LOG).touch()
        return program.init(jax.random.key(description.seed)), 0, 0.0
    restored = checkpoint.restore(directory / CHECKPOINTS, program.like)
    checkpoint.put_aside(directory / CHECKPOINTS, restored.damaged)
    session.cut(directory / LOG, restored.step)
    state = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), restored.state, program.like)
    return state, restored.step, restored.about["seconds"]


def _draw(directory: Path, artefact: artefacts.Artefact, config: Any) -> None:
    """The fitness over generations, and the learned function where it can be drawn."""
    from purerl.display import plots
    from purerl.meta import pictures

    if rows := _rows(directory):
        names = "fitness_worst", "fitness", "fitness_best"
        lines = {name: np.array([[np.nan if row[name] is None else row[name] for row in rows]]) for name in names}
        x = [row["generation"] for row in rows]
        plots.curves(directory / "curve.png", x, lines, artefact.socket, axes=("generation", "lifetime return"))
    pictures.draw(directory / "learned.png", artefact, config)
