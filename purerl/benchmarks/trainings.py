"""Trainings as jobs of a benchmark: one program of all agents, or where the host steps, a process of its own."""

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import backend, loops, population, trees
from purerl.benchmarks import turns
from purerl.catalogue import HOSTS
from purerl.errors import ConfigError
from purerl.population import layouts
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.describing.machine import machine_facts
from purerl.runs.describing.run_directory import METRICS, TIMES
from purerl.store import guards, log
from purerl.types import PyTree


def of_all(
    outcome: Callable[[Any], PyTree], agents: int, lanes: int = 0, devices: Sequence[jax.Device] | None = None
) -> Callable[[Any], PyTree]:
    """Returns a program of keys ``[agents]`` on every device, or on ``devices``: ``outcome(key)`` of each agent.

    Args:
        outcome: The function of one agent.
        agents: The number of agents.
        lanes: How many of them each device computes at once (0: as many as ``purerl train`` would).
        devices: The devices (None: all).
    """
    layout = population.layout(agents, devices, lanes=lanes or None)
    each = layouts.spread(lambda key, _: ((), outcome(key)), layout)
    return lambda keys: each(trees.fill(keys, layout.size), ())[1]


def job(
    description: TrainingDescription,
    options: Any,
    until: float | None = None,
    within: contextlib.AbstractContextManager | None = None,
) -> turns.Job:
    """Makes the job of the whole training that a description stands for, of all its agents in one program.

    It has the settings and the layout of ``purerl train``; nothing is logged, saved or evaluated. All metrics and the
    learner are results of the program, because XLA leaves out what no result needs. Agents that diverge, and frames
    that were not taken, fail it.

    Args:
        description: The description, of a training that takes frames.
        options: The options of ``purerl train``, for the layout.
        until: Also tell how much of the training it took until the mean return was this (None: do not).
        within: The context to compile and run in (None: there is none).

    Raises:
        ConfigError: The host steps the environments (`hosted_job`).
    """
    setup = Setup.of(description)
    if setup.on_host:
        families = ", ".join(f"{name}/" for name in HOSTS)
        raise ConfigError(f"env = {description.env!r}: of environments of the host only {families} can be measured")
    trainer = setup.make_trainer(setup.config)
    iterations, size = setup.config.num_iterations, setup.members.size
    taken = int(trainer.frames(iterations))
    train = loops.train(trainer, iterations)

    def outcome(key: Any) -> PyTree:
        state, metrics = train(key)
        counted = {"updates": state.learner.updates.low} if hasattr(state.learner, "updates") else {}
        done: Any = state.iteration.low
        told = {"frames": trainer.frames(done), **counted, "alive": state.alive}
        return {**told, "metrics": metrics, "learner": state.learner}

    def keys(seed: int) -> Any:
        return jax.random.split(jax.random.key(seed), size)

    def lower() -> Any:
        devices = population.devices.chosen(options.num_devices)
        program = of_all(outcome, size, options.lanes, devices)
        return jax.jit(program, compiler_options=backend.compiler_options()).lower(keys(0))

    def tally(result: dict[str, Any]) -> dict[str, Any]:
        if diverged := size - int(np.sum(result["alive"][:size])):
            raise SystemExit(f"{diverged} of {size} agents diverged")
        if (frames := np.unique(result["frames"]).tolist()) != [taken]:
            raise SystemExit(f"agents took {frames} frames, not {taken}")
        told = {"updates": int(result["updates"][0])} if "updates" in result else {}
        return told | turns.of_curve(result["metrics"]["episode_return"][:size], until)

    facts = {"frames": size * taken, "machine": machine_facts()}
    return turns.Job(lower, lambda program, seed: program(keys(seed)), facts, tally, within or contextlib.nullcontext())


def is_hosted(env: str) -> bool:
    """Returns whether a name is that of an environment of a library whose environments the host steps."""
    return env.partition("/")[0] in HOSTS


def hosted_job(words: Sequence[str], total: int) -> turns.Job:
    """Makes the job of ``purerl train WORDS`` of one agent, whose environments the host steps: a process of its own.

    It is timed in steady state (`turns.windowed`) by its ``times.jsonl``. The shares of time that it logs are told, the
    mean over iterations; so are its returns, how long it compiled and what it says of the machine. This process leaves
    the devices to it.

    Args:
        words: What follows ``purerl train``.
        total: The frames of the training.
    """
    told: dict[str, Any] = {}

    def train(seed: int) -> turns.Stamps:
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder, "run")
            command = [sys.executable, "-P", "-m", "purerl.cli", "train", *words, "--total-steps", str(total)]
            command += ["--eval-episodes", "1", "--compilation-cache", "off"]
            turns.run([*command, "--seed", str(seed), "--out", str(directory)])
            metrics = list(log.rows(directory / METRICS))
            summary = guards.read_json(directory / "summary.json")
            shares = [name for name in metrics[0] if name.startswith("share_")]
            told["shares"] = {name: statistics.mean(row[name] for row in metrics) for name in shares}
            told.update(turns.of_curve([[row["episode_return"] for row in metrics]]))
            told["compile_seconds"] = summary["compile_seconds"]
            told["compile_cached"] = "JAX_COMPILATION_CACHE_DIR" in os.environ
            told["machine"] = {name: summary[name] for name in ("device", "versions", "flags")}
            times = log.rows(directory / TIMES)
            return [(0, 0.0), *((row["env_steps"], row["seconds"]) for row in times)]

    return turns.windowed(train, total, told)
