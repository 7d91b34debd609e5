"""A run, from its directory to its summary: train, watch, save, evaluate. The command line's verbs, without parsing."""

import math
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from purerl import trees
from purerl.display import progress
from purerl.display.progress import say
from purerl.display.tables import print_summary
from purerl.formulas import aggregates
from purerl.runs import session, sweeps
from purerl.runs.description import Description, Setup
from purerl.runs.directory import FILES
from purerl.runs.evaluation import play
from purerl.runs.facts import machine_facts
from purerl.runs.program import Program, chunks, compile_program
from purerl.store import json_files, metrics
from purerl.store.policies import save_policy
from purerl.types import PyTree

EXIT_DIVERGED = 3
EVALUATION_STEPS = 10_000
"""Steps after which an episode of the final evaluation is cut."""


def train(description: Description, options: Any) -> int:
    """Trains a run's members, evaluates them, and writes a run directory. Returns the exit code.

    Raises `ConfigError` before anything compiles or is written, and `DoesNotFit` with nothing left behind.
    """
    console, setup = Console(stderr=True), Setup.of(description)
    directory = Path(options.out or f"runs/{description.name}-{datetime.now():%Y%m%d-%H%M%S}")
    with session.hold(directory, FILES, overwrite=options.overwrite):
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        json_files.write_json(directory / "config.json", {**description._asdict(), "command": command})
        return _train(description, setup, options, directory, console)


def _train(description: Description, setup: Setup, options: Any, directory: Path, console: Console) -> int:
    frames = setup.trainer.frames(setup.config.num_iterations)
    if frames != setup.config.total_steps:
        say(console, f"{frames:,} frames an agent will run: {setup.config.num_iterations:,} whole iterations")
    device, size = f"{len(jax.devices())} {jax.devices()[0].platform} device(s)", setup.members.size
    say(console, f"{description.algo} on {description.env}, {size} agent(s), {device}: compiling ...")
    program = _compile(setup, options)
    batch_size = program.chunk.batch_size
    batches = f", {math.ceil(size / batch_size)} batches of {batch_size}" if batch_size < size else ""
    say(console, f"compiled in {program.compile_seconds:.1f} s{batches}")

    with session.interrupts() as interrupted:
        trained = _train_members(setup, program, directory, console, interrupted)
    setup, alive = setup.first(len(trained.alive)), trained.alive
    save_policy(directory, trained.policy, {**description._asdict(), "members": len(alive)})
    evaluation = play(setup, trained.policy, options.eval_episodes, EVALUATION_STEPS, batch_size=batch_size)
    scores = np.where(alive, evaluation["return_per_seed"], np.nan)
    diverged = not (any(alive) if setup.swept else all(alive))
    summary = {
        "status": "interrupted" if interrupted else "diverged" if diverged else "completed",
        **{name: getattr(description, name) for name in ("algo", "env", "env_params", "seeds", "swept")},
        "env_steps": max(trained.env_steps),
        "all_env_steps": sum(trained.env_steps),
        "wall_seconds": trained.seconds,
        "compile_seconds": program.compile_seconds,
        "steps_per_second": sum(trained.env_steps) / trained.seconds,
        **evaluation,
        "return_iqm": aggregates.estimate(scores)._asdict(),
        "alive_per_seed": alive,
        "predicted_peak_bytes": program.chunk.peak_bytes,
        **machine_facts(),
    }
    json_files.write_json(directory / "summary.json", summary)
    print_summary(console, directory, summary)
    if interrupted:
        return 128 + interrupted[0]
    if setup.swept:
        sweeps.write_sweep(directory, sweeps.rank(setup, scores))
    return EXIT_DIVERGED if diverged else 0


class Trained(NamedTuple):
    """Policies ``[P]`` on the host; of each member whether it is alive and its frames; and the seconds it all took."""

    policy: PyTree
    alive: list[bool]
    env_steps: list[int]
    seconds: float


def _train_members(
    setup: Setup, program: Program, directory: Path, console: Console, interrupted: list[int]
) -> Trained:
    """Trains batch after batch, logging; ends after the chunk in which something lands in ``interrupted``."""
    size, batch_size, num_iterations = setup.members.size, program.chunk.batch_size, setup.config.num_iterations
    trainer, start = setup.trainer, time.perf_counter()
    frames = trainer.frames(num_iterations)
    policies, alive, env_steps = [], [], []
    with (
        open(directory / "metrics.jsonl", "w") as log,
        open(directory / "quantiles.jsonl", "w") as quantile_log,
        progress.show(console, frames * size) as report,
    ):
        for first in range(0, size, batch_size):
            labels = setup.labels[first : first + batch_size]
            batch, iteration = trees.take(setup.members, slice(first, first + batch_size)), 0
            for chunk in chunks(program, batch, num_iterations):
                steps = [trainer.frames(i) for i in range(iteration + 1, chunk.done + 1)]
                log.writelines(metrics.rows(chunk.metrics, steps, iteration + 1, labels))
                quantile_log.writelines(metrics.quantile_rows(chunk.metrics, steps, iteration + 1, first))
                log.flush()
                quantile_log.flush()
                iteration = chunk.done
                report(frames * first + steps[-1] * batch.size, progress.mean_return(chunk.metrics))
                if interrupted or not chunk.metrics["alive"][-1].any():
                    break
            env_steps += [steps[-1]] * batch.size
            alive += chunk.metrics["alive"][-1].tolist()
            policy = jax.vmap(trainer.learner.policy)(chunk.state.learner)
            policies.append(jax.tree.map(lambda x, size=batch.size: np.asarray(x)[:size], policy))
            if interrupted:
                break
    policy = jax.tree.map(lambda *x: np.concatenate(x), *policies)
    return Trained(policy, alive, env_steps, time.perf_counter() - start)


def _compile(setup: Setup, options: Any) -> Program:
    batch_size = options.agents_at_once or "auto"
    return compile_program(setup.make_trainer, setup.members, batch_size, lanes=options.lanes or None)
