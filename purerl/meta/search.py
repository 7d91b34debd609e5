"""A search from its directory to its artefact: generation after generation, watched, saved, interrupted and resumed.

What a search computes follows from its description and the number of generations alone. Where it was cut into chunks,
saved, killed and resumed makes no difference to any bit on CPU.
"""

import contextlib
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

from purerl import checkpoint, envs, experiment, files, logging, loops, planning, population, run
from purerl import config as cfg
from purerl.algos import ALGORITHMS, read_config
from purerl.meta import artefacts, evolution, meta_gradient, sockets, strategies
from purerl.types import PyTree

CAPACITY = 64
"""Most generations of a chunk, and so the rows of metrics that the device holds."""
CHUNK_SECONDS = 1.0
"""What a chunk should take: how long the progress bar, Ctrl-C and a fixed time wait, if a generation takes less."""
CHECKPOINTS = "checkpoints"
LOG = "generations.jsonl"
FILES = ("config.json", LOG, "summary.json", artefacts.NAME, "curve.png", "learned.png", "report.json", CHECKPOINTS)
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
        like = planning.zeros(jax.eval_shape(socket.init, jax.random.key(0)))
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
        except cfg.ConfigError as error:
            found.append(str(error))
    for env in environments:
        found += [line for line in ALGORITHMS[algo].problems(config, env) if line not in found]
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
        raise cfg.ConfigError("\n".join(found))
    return description


@contextlib.contextmanager
def _collecting(found: list[str]):
    try:
        yield
    except cfg.ConfigError as error:
        found.append(str(error))


class Program(NamedTuple):
    """A search, compiled: ``chunk(state, length) -> (state, metrics [CAPACITY])`` donates the state it is given."""

    init: Any
    chunk: jax.stages.Compiled
    like: PyTree
    peak_bytes: int
    seconds: float


def compile(setup: Setup, capacity: int = CAPACITY) -> Program:
    """Compiles the generations of a search, one program for any number of them. Raises `planning.DoesNotFit`."""
    start, devices = time.perf_counter(), setup.evolution.devices or jax.devices()[:1]
    everywhere = NamedSharding(jax.sharding.Mesh(np.array(devices), (population.AXIS,)), PartitionSpec())
    init = jax.jit(setup.evolution.init, out_shardings=everywhere)
    like = planning.shapes(jax.eval_shape(setup.evolution.init, jax.random.key(0)), everywhere)
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
    if options.resume:
        _check_resumable(directory, description)
    else:
        experiment.claim(directory, options.overwrite, FILES)
    with checkpoint.lock(directory):
        checkpoint.clear(directory / CHECKPOINTS)
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        files.write_json(directory / "config.json", {**description, "command": command})
        return _search(description, options, directory, console)


def _check_resumable(directory: Path, description: dict[str, Any]) -> None:
    """Raises `ConfigError` that names every field in which a saved search differs from ``description``."""
    saved, found = files.read_json(directory / "config.json"), []
    given = json.loads(json.dumps(files.finite(description)))
    for field in given:
        if field not in SOFT and saved.get(field) != given[field]:
            found.append(f"{field} = {given[field]!r}: the search in {str(directory)!r} has {saved.get(field)!r}")
    if found:
        raise cfg.ConfigError("\n".join(found))


def _search(description: dict[str, Any], options: Any, directory: Path, console: Console) -> int:
    setup, generations = Setup.of(description), description["generations"]
    total = setup.frames * generations
    experiment.say(console, f"{total:,} frames in all, {setup.frames:,} a generation: compiling ...")
    program = compile(setup)
    experiment.say(console, f"compiled in {program.seconds:.1f} s")
    state, first, spent = _begin(setup, program, description, options.resume, directory)
    start = saved = time.perf_counter()
    done, length, rows = first, 1, None
    elapsed = lambda: spent + time.perf_counter() - start  # noqa: E731
    over = lambda: bool(options.budget_seconds) and elapsed() >= options.budget_seconds  # noqa: E731

    def save() -> None:
        about = {"generation": done, "frames": done * setup.frames, "seconds": elapsed(), "description": description}
        if done not in checkpoint.steps(directory / CHECKPOINTS):
            checkpoint.save(directory / CHECKPOINTS, done, state, files.finite(about))

    with (
        run.interrupts() as interrupted,
        open(directory / LOG, "a") as log,
        logging.progress(console, setup.frames * max(1, generations - first)) as report,
    ):
        while done < generations and not interrupted and not over():
            length, before = max(1, min(length, CAPACITY, generations - done)), time.perf_counter()
            state, metrics = jax.block_until_ready(program.chunk(state, jnp.int32(length)))
            rows = {name: np.asarray(values)[:length] for name, values in metrics.items()}
            for i in range(length):
                row = {"generation": done + i + 1, "frames": (done + i + 1) * setup.frames}
                log.write(json.dumps(files.finite(row | {k: float(v[i]) for k, v in rows.items()})) + "\n")
            done += length
            report((done - first) * setup.frames, float(rows["fitness"][-1]))
            now = time.perf_counter()
            length = int(length * min(4.0, CHUNK_SECONDS / (now - before))) or 1
            if not rows["alive"].any():
                break
            if now - saved >= options.checkpoint_seconds:
                _flush(log)
                save()
                saved = now
        _flush(log)
        save()
    failed = rows is not None and not rows["alive"].any()
    status = "interrupted" if interrupted else "diverged" if failed else "completed"
    evidence = {"generations": done, "frames": done * setup.frames, "seconds": elapsed(), "status": status}
    card = {**description, **evidence, **experiment.machine_facts()}
    artefact = artefacts.of_socket(description["socket"], setup.evolution.mean(state), card)
    artefacts.save(directory / artefacts.NAME, artefact)
    files.write_json(directory / "summary.json", {**card, "compile_seconds": program.seconds})
    _draw(directory, artefact, setup.config)
    last = f"; fitness {rows['fitness'][-1]:.1f}" if rows is not None else ""
    experiment.say(console, f"{status}: {done:,} generations, {done * setup.frames:,} frames{last}; {directory}")
    if interrupted:
        experiment.say(console, f"go on with the same command and --resume --out {directory}")
        return 128 + interrupted[0]
    if failed:
        experiment.say(console, "every training of the last generations died; the mean was kept as it was")
    return experiment.EXIT_DIVERGED if failed else 0


def _begin(
    setup: Setup, program: Program, description: dict[str, Any], resume: bool, directory: Path
) -> tuple[PyTree, int, float]:
    """The state to go on from, its generation, and the seconds that were spent before."""
    fresh = program.init(jax.random.key(description["seed"]))
    if not resume or not checkpoint.steps(directory / CHECKPOINTS):
        (directory / LOG).unlink(missing_ok=True)
        return fresh, 0, 0.0
    restored = checkpoint.restore(directory / CHECKPOINTS, program.like)
    lines = (directory / LOG).read_text().splitlines(keepends=True)[: restored.step]
    (directory / LOG).write_text("".join(lines))
    state = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), restored.state, program.like)
    return state, restored.step, restored.about["seconds"]


def _flush(log: Any) -> None:
    """A checkpoint must never be ahead of the log."""
    log.flush()
    os.fsync(log.fileno())


def _draw(directory: Path, artefact: artefacts.Artefact, config: Any) -> None:
    """The fitness over generations, and the learned function where it can be drawn."""
    from purerl import plot
    from purerl.meta import pictures

    rows = [json.loads(line) for line in (directory / LOG).read_text().splitlines()]
    if rows:
        names = "fitness_worst", "fitness", "fitness_best"
        lines = {name: np.array([[np.nan if row[name] is None else row[name] for row in rows]]) for name in names}
        x = [row["generation"] for row in rows]
        plot.curves(directory / "curve.png", x, lines, artefact.socket, axes=("generation", "lifetime return"))
    pictures.draw(directory / "learned.png", artefact, config)


def plan(description: dict[str, Any]) -> dict[str, Any]:
    """What a search would cost: frames, memory, and hours by the speed of short lives. Compiles, and runs a little."""
    setup = Setup.of(description)
    iterations = setup.config.num_iterations
    short = dict(
        description["config"], total_steps=description["config"]["total_steps"] // iterations * min(8, iterations)
    )
    small = Setup.of({**description, "config": short})
    program = compile(small, capacity=1)
    state, seconds = program.init(jax.random.key(0)), []
    for _ in range(2):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program.chunk(state, jnp.int32(1)))
        seconds.append(time.perf_counter() - start)
    speed = small.frames / min(seconds)
    frames = setup.frames * description["generations"]
    return {
        "frames": frames,
        "frames_per_generation": setup.frames,
        "peak_bytes": program.peak_bytes,
        "steps_per_second": speed,
        "hours": frames / speed / 3600,
    }
