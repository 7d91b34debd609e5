"""A run, from its directory to its summary: train, watch, save, evaluate. The command line's verbs, without parsing."""

import errno
import importlib.metadata
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from purerl import config as cfg
from purerl import envs, files, logging, planning, population, results, run, statistics
from purerl.algos import ALGORITHMS
from purerl.checkpoint import LOCK
from purerl.meta import artefacts
from purerl.replay import nbytes
from purerl.types import PyTree

FILES = (
    "config.json",
    "metrics.jsonl",
    "quantiles.jsonl",
    "summary.json",
    "policy.safetensors",
    "policy.json",
    "sweep.json",
    "sweep.png",
)
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "gymnax", "numpy")
EXIT_DIVERGED = 3
EVALUATION_STEPS = 10_000
"""Steps after which an episode of the final evaluation is cut."""


def describe(
    algo: str, options: Any, config: Any, env_params: dict[str, float], swept: dict[str, list[float]] | None = None
) -> dict[str, Any]:
    """The description of a run, as `results.Setup` reads it. Raises `ConfigError`, with all problems at once."""
    swept = swept or {}
    found = cfg.problems(options)
    if not found and options.seed + options.num_seeds > 2**32:
        found.append(f"num_seeds = {options.num_seeds}: seed + num_seeds must not exceed {2**32}")
    env = None
    try:
        env = envs.make(options.env, **env_params, **results.env_part(swept, 0))
    except cfg.ConfigError as error:
        found.append(str(error))
    problems = lambda config: ALGORITHMS[algo].problems(config, env)  # noqa: E731
    found += problems(config) + cfg.sweep_problems(config, results.config_part(swept), problems)
    learned = {}
    try:
        learned = artefacts.described(algo, options)
    except cfg.ConfigError as error:
        found.append(str(error))
    if found:
        raise cfg.ConfigError("\n".join(found))
    seeds = list(range(options.seed, options.seed + options.num_seeds))
    fixed = {"algo": algo, "env": options.env, "env_params": env_params, "seeds": seeds, "config": vars(config)}
    return {**fixed, "swept": swept, "learned": learned}


def plan(description: dict[str, Any], options: Any) -> planning.Plan:
    """What the run would cost, from its compiled program. Runs nothing. Raises `DoesNotFit`."""
    setup = results.Setup.of(description)
    compiled = _compile(setup, options).chunk
    trainer = setup.trainer
    state = jax.eval_shape(trainer.init, setup.members.keys[0])
    found = compiled.plan(setup.members.size, planning.flops(trainer.step, state) / trainer.env_steps)
    return found._replace(replay_bytes=nbytes(state.replay))


def train(description: dict[str, Any], options: Any) -> int:
    """Trains a run's members, evaluates them, and writes a run directory. Returns the exit code.

    Raises `ConfigError` before anything compiles or is written, and `DoesNotFit` with nothing left behind.
    """
    console, setup = Console(stderr=True), results.Setup.of(description)
    name = f"{description['algo']}-{description['env'].replace('/', '-')}"
    directory = Path(options.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
    claim(directory, options.overwrite)
    files.write_json(directory / "config.json", {**description, "command": [Path(sys.argv[0]).name, *sys.argv[1:]]})

    frames = setup.trainer.frames(setup.config.num_iterations)
    if frames != setup.config.total_steps:
        say(console, f"{frames:,} frames an agent will run: {setup.config.num_iterations:,} whole iterations")
    device, size = f"{len(jax.devices())} {jax.devices()[0].platform} device(s)", setup.members.size
    say(console, f"{description['algo']} on {description['env']}, {size} agent(s), {device}: compiling ...")
    try:
        program = _compile(setup, options)
    except (MemoryError, jax.errors.JaxRuntimeError):
        (directory / "config.json").unlink()
        directory.rmdir()
        raise
    batch_size = program.chunk.batch_size
    batches = f", {math.ceil(size / batch_size)} batches of {batch_size}" if batch_size < size else ""
    say(console, f"compiled in {program.compile_seconds:.1f} s{batches}")

    with run.interrupts() as interrupted:
        trained = _train_members(setup, program, directory, console, interrupted)
    setup, alive = setup.first(len(trained.alive)), trained.alive
    files.save_policy(directory, trained.policy, {**description, "members": len(alive)})
    evaluation = results.play(setup, trained.policy, options.eval_episodes, EVALUATION_STEPS, batch_size=batch_size)
    scores = np.where(alive, evaluation["return_per_seed"], np.nan)
    diverged = not (any(alive) if setup.swept else all(alive))
    summary = {
        "status": "interrupted" if interrupted else "diverged" if diverged else "completed",
        **{name: description[name] for name in ("algo", "env", "env_params", "seeds", "swept")},
        "env_steps": max(trained.env_steps),
        "all_env_steps": sum(trained.env_steps),
        "wall_seconds": trained.seconds,
        "compile_seconds": program.compile_seconds,
        "steps_per_second": sum(trained.env_steps) / trained.seconds,
        **evaluation,
        "return_iqm": statistics.estimate(scores)._asdict(),
        "alive_per_seed": alive,
        "predicted_peak_bytes": program.chunk.peak_bytes,
        **machine_facts(),
    }
    files.write_json(directory / "summary.json", summary)
    _print_summary(console, directory, summary)
    if interrupted:
        return 128 + interrupted[0]
    if setup.swept:
        results.write_sweep(directory, results.rank(setup, scores))
    return EXIT_DIVERGED if diverged else 0


class Trained(NamedTuple):
    """Policies ``[P]`` on the host; of each member whether it is alive and its frames; and the seconds it all took."""

    policy: PyTree
    alive: list[bool]
    env_steps: list[int]
    seconds: float


def _train_members(
    setup: results.Setup, program: run.Program, directory: Path, console: Console, interrupted: list[int]
) -> Trained:
    """Trains batch after batch, logging; ends after the chunk in which something lands in ``interrupted``."""
    size, batch_size, num_iterations = setup.members.size, program.chunk.batch_size, setup.config.num_iterations
    trainer, start = setup.trainer, time.perf_counter()
    frames = trainer.frames(num_iterations)
    policies, alive, env_steps = [], [], []
    with (
        open(directory / "metrics.jsonl", "w") as log,
        open(directory / "quantiles.jsonl", "w") as quantile_log,
        logging.progress(console, frames * size) as report,
    ):
        for first in range(0, size, batch_size):
            labels = setup.labels[first : first + batch_size]
            batch, iteration = population.take(setup.members, slice(first, first + batch_size)), 0
            for chunk in run.chunks(program, batch, num_iterations):
                steps = [trainer.frames(i) for i in range(iteration + 1, chunk.iteration + 1)]
                log.writelines(files.rows(chunk.metrics, steps, iteration + 1, labels))
                quantile_log.writelines(files.quantile_rows(chunk.metrics, steps, iteration + 1, first))
                log.flush()
                quantile_log.flush()
                iteration = chunk.iteration
                report(frames * first + steps[-1] * batch.size, logging.mean_return(chunk.metrics))
                if interrupted or not chunk.metrics["alive"][-1].any():
                    break
            env_steps += [steps[-1]] * batch.size
            alive += chunk.metrics["alive"][-1].tolist()
            policy = jax.vmap(trainer.learner.policy)(chunk.state.learner)
            policies.append(jax.tree.map(lambda x: np.asarray(x)[: batch.size], policy))
            if interrupted:
                break
    policy = jax.tree.map(lambda *x: np.concatenate(x), *policies)
    return Trained(policy, alive, env_steps, time.perf_counter() - start)


def machine_facts() -> dict[str, Any]:
    """Device, versions and flags: what a figure is worth nothing without."""
    device = jax.devices()[0]
    return {
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": len(jax.devices()),
            "cores": os.cpu_count(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "flags": {name: os.environ[name] for name in os.environ if name.startswith(("JAX_", "XLA_"))},
    }


def say(console: Console, text: str) -> None:
    """A line of plain text."""
    console.print(text, highlight=False, soft_wrap=True)


def _compile(setup: results.Setup, options: Any) -> run.Program:
    batch_size = options.agents_at_once or "auto"
    return run.compile(setup.make_trainer, setup.members, batch_size, lanes=options.lanes or None)


def prepare(directory: Path, overwrite: bool, names: Sequence[str] = FILES) -> None:
    """Makes a run directory if it is not there. Raises `ConfigError` if it cannot be written, or holds more than the
    files and folders ``names`` of a run that ``overwrite`` gives away."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK and not (overwrite and path.name in names) for path in directory.iterdir()):
            raise cfg.ConfigError(
                f"out = {str(directory)!r}: already in use; must be a new or an empty directory, or give --overwrite "
                "to replace the run in it"
            )
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cfg.ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None


def claim(directory: Path, overwrite: bool, names: Sequence[str] = FILES) -> None:
    """Takes over a directory that `prepare` allows, and removes the earlier run. Of two claims at once, one fails."""
    prepare(directory, overwrite, names)
    try:
        for path in (directory / name for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        (directory / "config.json").open("x").close()
    except OSError as error:
        raise cfg.ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None


def _print_summary(console: Console, directory: Path, summary: dict[str, Any]) -> None:
    worst = min(summary["return_per_seed"], default=math.nan)
    say(
        console,
        f"{summary['status']}: {logging.frames_per_second(summary['steps_per_second'])}, "
        f"{summary['wall_seconds']:.1f} s; return {summary['return_mean']:.1f} (worst agent {worst:.1f}); {directory}",
    )
