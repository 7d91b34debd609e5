"""The end of members before the last iteration of their batch, because they diverged or stopped early."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from purerl import counters, population, processes, trees
from purerl.loops import stopping
from purerl.population.layouts import place
from purerl.runs.running.run import Run
from purerl.runs.running.run_loop import Chunk
from purerl.types import FAULTS, Trainer, TrainState

MOST_TOLD = 3
"""The most agents whose divergence is told one by one."""


def learning(state: TrainState, size: int) -> np.ndarray:
    """Returns which of the first ``size`` members of a state still learn, ``[size]`` bool."""
    alive, so_far = processes.fetch((state.alive, state.stopping))
    still_learning: np.ndarray = (alive & ~so_far.stopped if so_far else alive)[:size]
    return still_learning


def cut(chunk: Chunk) -> Chunk:
    """Cuts a chunk after the iteration in which its last member stopped.

    Its metrics ``[iterations, B]`` are on the host. Where no member stops early it stays whole. The state is not cut:
    the iterations after that have changed no learner.
    """
    if "stopped" not in chunk.metrics:
        return chunk
    over = (chunk.metrics["stopped"] | ~chunk.metrics["alive"]).all(axis=1)
    length = int(over.argmax()) + 1 if over.any() else chunk.length
    return chunk._replace(
        done=chunk.done - chunk.length + length,
        length=length,
        metrics={name: values[:length] for name, values in chunk.metrics.items()},
        seconds=chunk.seconds * length / chunk.length,
    )


def after_evaluation(
    state: TrainState, evaluated: dict[str, Any], target: float, iteration: int, layout: population.Layout
) -> TrainState:
    """Stops the members whose return in an evaluation (`evaluation.prepare`) is at least ``target``, as `stopped` does.

    The evaluation took place after ``iteration``.
    """
    return stopped(state, np.array(evaluated["return_per_seed"]) >= target, iteration, layout)


def faults(state: TrainState, size: int) -> list[tuple[str, int] | None]:
    """Returns what was not finite first in the training of each of the first ``size`` members, and in which iteration.

    None: it is alive.
    """
    alive, fault = processes.fetch((state.alive, state.fault))
    if not fault:
        return [None] * size
    found = ((FAULTS[fault.kind[i]], counters.number(trees.take(fault.iteration, i))) for i in range(size))
    return [None if alive[i] else each for i, each in enumerate(found)]


def divergences(run: Run, faults: Sequence[tuple[str, int] | None]) -> list[str]:
    """Returns a line for each agent that diverged (`faults`), at most `MOST_TOLD`, and some about what may help."""
    diverged = [(agent, *fault) for agent, fault in enumerate(faults) if fault]
    seeds = [label["seed"] for label in run.setup.labels]
    lines = [
        f"agent {agent} (seed {seeds[agent]}) diverged in iteration {iteration}: {kind} was not finite"
        for agent, kind, iteration in diverged[:MOST_TOLD]
    ]
    if len(diverged) > MOST_TOLD:
        lines.append(f"{len(diverged) - MOST_TOLD} more agents diverged")
    kinds, config = {kind for _, kind, _ in diverged}, run.setup.config
    if kinds & set(FAULTS[1:3]):
        lines.append(
            f"purerl check-env {run.description.env} looks for such numbers; "
            "--env-params mask_nonfinite=1 ends episodes where they occur"
        )
    own = [word for word in run.description.code if ":" in word and word != run.description.env]
    if own and kinds & set(FAULTS[3:]):
        lines.append(f"look in {', '.join(own)} for a logarithm, a root, a power or a division")
    if kinds & set(FAULTS[3:]):
        options = ["--learning-rate", *(["--max-grad-norm"] if hasattr(config, "max_grad_norm") else [])]
        scaled = "; --normalize-reward scales rewards" if getattr(config, "normalize_reward", True) is False else ""
        lines.append(f"a smaller {' or '.join(options)} makes smaller steps{scaled}")
    return lines


class Means:
    """Means of a metric of ``size`` members over the episodes that ended: their ``total`` and number ``ended``."""

    def __init__(self, size: int, total: np.ndarray | None = None, ended: np.ndarray | None = None):
        self.total = np.zeros(size) if total is None else total
        self.ended = np.zeros(size, np.int64) if ended is None else ended

    def add(self, count: np.ndarray, value: np.ndarray) -> None:
        """Adds an iteration in which ``count`` ``[size]`` episodes ended, with the mean ``value`` (nan: unknown)."""
        told = np.isfinite(value)
        self.total += np.where(told, value * count, 0.0)
        self.ended += np.where(told, count, 0)

    @property
    def values(self) -> np.ndarray:
        """The means ``[size]``; nan where no episode ended."""
        return np.where(self.ended > 0, self.total / np.maximum(self.ended, 1), np.nan)


class Watched:
    """The metric of ``size`` members that early stopping reads, a mean over the episodes that ended."""

    def __init__(self, size: int, described: dict[str, Any]):
        self._metric, self._at, self._episodes = described["metric"], described["at"], described["episodes"]
        self._means = Means(size)

    def reached(self, metrics: dict[str, np.ndarray]) -> np.ndarray:
        """Returns which members have reached the target by a chunk whose ``metrics`` are ``[iterations, size]``."""
        means, episodes = self._means, metrics["episodes"]
        reached = np.zeros(len(means.total), bool)
        for count, value in zip(episodes, metrics.get(self._metric, np.full(episodes.shape, np.nan)), strict=True):
            means.add(count, value)
            enough = means.ended >= self._episodes
            reached |= enough & (means.total >= self._at * means.ended)
            means.total[enough], means.ended[enough] = 0.0, 0
        return reached


def stopped(state: TrainState, reached: np.ndarray, iteration: int, layout: population.Layout) -> TrainState:
    """Stops the members ``[size]`` that have ``reached`` their target and still learn, after ``iteration``."""
    reached = reached & learning(state, len(reached))
    everyone = trees.fill(reached, len(state.alive))
    now = stopping.stopped_by(processes.fetch(state.stopping), everyone, iteration)
    return state._replace(stopping=place(now, layout))


def stopped_at(state: TrainState, size: int, trainer: Trainer) -> list[int | None]:
    """Returns after how many frames each of the first ``size`` members stopped early; None: it did not."""
    if not state.stopping:
        return [None] * size
    iterations = stopping.iterations(processes.fetch(state.stopping))[:size]
    return [at if at is None else trainer.counted(at) for at in iterations]
