"""A search from its directory to its artefact: generation after generation, watched, saved, interrupted and resumed.

What a search computes follows from its description and the number of generations alone. Where it was cut into chunks,
saved, killed and resumed makes no difference to any bit on CPU.
"""

import contextlib
import dataclasses
import json
import os
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

from purerl import config as cfg
from purerl import envs, loops, population, trees
from purerl.algos import ALGORITHMS, read_config
from purerl.display import progress
from purerl.envs.union import union
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.meta import evolution, meta_gradient, strategies
from purerl.population import planning
from purerl.runs.directory import claim, prepare
from purerl.runs.facts import machine_facts
from purerl.runs.program import interrupts
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
SHORT_LIVES = 2, 16
"""Iterations of the lives whose times tell what a search would cost."""
PATIENCE = 10
"""Generations in a row in which no training has a fitness, after which a search ends."""
SOFT = ("generations",)
"""What a resumed search may change."""


class Setup(NamedTuple):
    """What a description stands for."""

    config: Any
    evolution: evolution.Evolution

    @classmethod
    def of(cls, description: dict[str, Any]) -> "Setup":
        """Reads a description, as `describe` makes it or a file holds it."""
        algo, socket = ALGORITHMS[description["algo"]], sockets.make(description["socket"])
        config = read_config(description["algo"], description["config"])
        environments = [envs.make(name, **description["env_params"]) for name in description["envs"]]
        size, options = description["population"], description["strategy"]
        if options["name"] == meta_gradient.NAME:
            rates = {"learning_rate": options["learning_rate"]}
            return cls(config, meta_gradient.of(socket, algo, config, environments, num_agents=size, **rates))
        like = trees.zeros(jax.eval_shape(socket.init, jax.random.key(0)))
        strategy = strategies.make(size=size, like=like, **options)
        options = {"num_seeds": description["num_seeds"], "lanes": description["lanes"] or None}
        return cls(config, evolution.of(socket, algo, config, environments, strategy, **options))

    @property
    def frames(self) -> int:
        """Those of a generation, of all its trainings together."""
        return self.evolution.frames


def describe(socket: str, algo: str, options: Any, config: Any, env_params: dict[str, float]) -> dict[str, Any]:
    """The description of a search, as `Setup.of` reads it. Raises `ConfigError`, with all problems at once."""
    found = cfg.problems(options)
    if not options.env:
        found.append("env = (): name one environment or several")
    environments = []
    for name in options.env:
        try:
            environments.append(envs.make(name, **env_params))
        except ConfigError as error:
            found.append(str(error))
    if len(environments) > 1:
        with _collecting(found):
            environments.append(union(environments)(0))
    for env in environments or [None]:
        found += [line for line in ALGORITHMS[algo].problems(config, env) if line not in found]
    found += sockets.make(socket).problems(config)
    found += _unused(options)
    strategy = {
        "name": options.strategy,
        "sigma": options.sigma,
        "sigma_decay": options.sigma_decay,
        "sigma_limit": options.sigma_limit,
        "learning_rate": options.meta_learning_rate,
        "momentum": options.momentum,
    }
    description = {
        "socket": socket,
        "algo": algo,
        "envs": list(options.env),
        "env_params": env_params,
        "config": vars(config),
        "strategy": strategy,
        "population": options.population,
        "num_seeds": options.num_seeds,
        "generations": options.generations,
        "seed": options.seed,
        "lanes": options.lanes,
    }
    if not found:
        with _collecting(found):
            Setup.of(description)
    if found:
        raise ConfigError("\n".join(found))
    return description


ONLY_OPEN_ES = "sigma_decay", "sigma_limit", "momentum"
NOT_META_GRADIENT = "sigma", "num_seeds", "lanes"


def _unused(options: Any) -> list[str]:
    """A line for each option that differs from its default and that the strategy does not use."""
    unused: tuple[str, ...] = ()
    if options.strategy != "Open_ES":
        unused += ONLY_OPEN_ES
    if options.strategy == meta_gradient.NAME:
        unused += NOT_META_GRADIENT
    elif options.strategy != "Open_ES":
        unused += ("meta_learning_rate",)
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    given = {name: getattr(options, name) for name in unused}
    return [
        f"{name} = {value}: {options.strategy} does not use it"
        for name, value in given.items()
        if value != defaults[name]
    ]


@contextlib.contextmanager
def _collecting(found: list[str]):
    try:
        yield
    except ConfigError as error:
        found.append(str(error))


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


def search(description: dict[str, Any], options: Any) -> int:
    """Runs a search, or goes on with one, and writes its directory. Returns the exit code.

    Raises `ConfigError` before anything compiles or is written.
    """
    console = Console(stderr=True)
    name = f"{description['socket']}-{description['algo']}"
    directory = Path(options.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
    if options.resume and options.overwrite:
        raise ConfigError("overwrite: a search that goes on replaces nothing; give it or resume")
    if options.resume:
        _check_resumable(directory, description)
    else:
        prepare(directory, options.overwrite, FILES)
    with checkpoint.lock(directory):
        if not options.resume:
            claim(directory, options.overwrite, FILES)
        checkpoint.clear(directory / CHECKPOINTS)
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        json_files.write_json(directory / "config.json", {**description, "command": command})
        try:
            return _search(description, options, directory, console)
        except MemoryError:
            if not options.resume:
                (directory / "config.json").unlink()
            raise


def _check_resumable(directory: Path, description: dict[str, Any]) -> None:
    """Raises `ConfigError` that names every field in which a saved search differs from ``description``."""
    saved, given = (
        json_files.read_json(directory / "config.json"),
        json.loads(json.dumps(json_files.finite(description))),
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


def _search(description: dict[str, Any], options: Any, directory: Path, console: Console) -> int:
    setup, generations = Setup.of(description), description["generations"]
    total = setup.frames * generations
    progress.say(console, f"{total:,} frames in all, {setup.frames:,} a generation: compiling ...")
    program = compile_program(setup)
    progress.say(console, f"compiled in {program.seconds:.1f} s")
    state, first, spent = _begin(setup, program, description, options.resume, directory)
    done, length, barren = first, 1, _barren(directory)
    start = saved = time.perf_counter()
    elapsed = lambda: spent + time.perf_counter() - start  # noqa: E731
    over = lambda: bool(options.budget_seconds) and elapsed() >= options.budget_seconds  # noqa: E731

    def save() -> None:
        about = {"generation": done, "frames": done * setup.frames, "seconds": elapsed(), "description": description}
        if done not in checkpoint.steps(directory / CHECKPOINTS):
            checkpoint.save(directory / CHECKPOINTS, done, state, json_files.finite(about))

    save()
    with (
        interrupts() as interrupted,
        open(directory / LOG, "a") as log,
        progress.show(console, setup.frames * max(1, generations - first)) as report,
    ):
        while done < generations and not interrupted and not over() and barren < PATIENCE:
            length, before = max(1, min(length, CAPACITY, generations - done)), time.perf_counter()
            state, metrics = jax.block_until_ready(program.chunk(state, jnp.int32(length)))
            rows = {name: np.asarray(values)[:length] for name, values in metrics.items()}
            for i in range(length):
                row = {"generation": done + i + 1, "frames": (done + i + 1) * setup.frames}
                log.write(json.dumps(json_files.finite(row | {k: float(v[i]) for k, v in rows.items()})) + "\n")
                barren = 0 if rows["alive"][i] else barren + 1
            done += length
            report((done - first) * setup.frames, float(rows["fitness"][-1]))
            now = time.perf_counter()
            length = int(length * min(4.0, CHUNK_SECONDS / (now - before))) or 1
            if now - saved >= options.checkpoint_seconds:
                _flush(log)
                save()
                saved = now
        _flush(log)
        save()
    failed = barren >= min(PATIENCE, max(1, done))
    status = "completed" if done == generations else "stopped"
    if interrupted or failed:
        status = "interrupted" if interrupted else "diverged"
    last = _rows(directory)[-1:]
    evidence = {"generations": done, "frames": done * setup.frames, "seconds": elapsed(), "status": status}
    evidence["fitness"] = last[0]["fitness"] if last else None
    card = {**description, **evidence, **machine_facts()}
    artefact = artefacts.of_socket(description["socket"], setup.evolution.mean(state), card)
    if done > first or not (directory / artefacts.NAME).exists():
        for name in OF_AN_ARTEFACT:
            (directory / name).unlink(missing_ok=True)
        artefacts.save(directory / artefacts.NAME, artefact)
    json_files.write_json(directory / "summary.json", {**card, "compile_seconds": program.seconds})
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
    setup: Setup, program: Program, description: dict[str, Any], resume: bool, directory: Path
) -> tuple[PyTree, int, float]:
    """The state to go on from, its generation, and the seconds that were spent before; the log ends there."""
    if not resume:
        (directory / LOG).touch()
        return program.init(jax.random.key(description["seed"])), 0, 0.0
    restored = checkpoint.restore(directory / CHECKPOINTS, program.like)
    checkpoint.put_aside(directory / CHECKPOINTS, restored.damaged)
    log = directory / LOG
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    if len(lines) < restored.step:
        raise ConfigError(f"{log}: has {len(lines)} generations, the checkpoint {restored.step}")
    temporary = log.with_name(log.name + ".tmp")
    temporary.write_text("".join(lines[: restored.step]))
    os.replace(temporary, log)
    state = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), restored.state, program.like)
    return state, restored.step, restored.about["seconds"]


def _flush(log: Any) -> None:
    """A checkpoint must never be ahead of the log."""
    log.flush()
    os.fsync(log.fileno())


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


def plan(description: dict[str, Any]) -> dict[str, Any]:
    """What a search would cost: frames, memory, and hours by the speed of short lives. Compiles, and runs a little."""
    setup = Setup.of(description)
    algo, env = ALGORITHMS[description["algo"]], envs.make(description["envs"][0], **description["env_params"])
    trainer, whole = algo.make_trainer(setup.config, env), setup.config.num_iterations
    lengths = sorted({min(length, whole) for length in SHORT_LIVES})
    lives = [dict(description["config"], total_steps=trainer.frames(length)) for length in lengths]
    peaks, seconds = zip(*(_timed(Setup.of({**description, "config": config})) for config in lives), strict=True)
    generation = _extrapolate(lengths, seconds, whole)
    frames = setup.frames * description["generations"]
    return {
        "frames": frames,
        "frames_per_generation": setup.frames,
        "peak_bytes": max(peaks),
        "steps_per_second": setup.frames / generation,
        "hours": generation * description["generations"] / 3600,
    }


def _timed(setup: Setup) -> tuple[int, float]:
    """The memory of a search's program, and the seconds of a generation, the faster of two."""
    program, seconds = compile_program(setup, capacity=1), []
    state = program.init(jax.random.key(0))
    for _ in range(2):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program.chunk(state, jnp.int32(1)))
        seconds.append(time.perf_counter() - start)
    return program.peak_bytes, min(seconds)


def _extrapolate(lengths: list[int], seconds: tuple[float, ...], whole: int) -> float:
    """The seconds of a life of ``whole`` iterations, by those of shorter ones: a life's beginning, a warm-up above all,
    costs other than its iterations do."""
    slope = (seconds[-1] - seconds[0]) / max(1, lengths[-1] - lengths[0])
    return seconds[-1] + max(0.0, slope) * (whole - lengths[-1])
