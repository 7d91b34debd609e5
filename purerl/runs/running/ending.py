"""When the members of a batch are done before its last iteration: they died, or have stopped early."""

from typing import Any

import numpy as np

from purerl import population, processes, trees
from purerl.loops import stopping
from purerl.runs.running.session import Chunk
from purerl.types import Trainer, TrainState


def learning(state: TrainState, size: int) -> np.ndarray:
    """Which of the first ``size`` members of a state still learn, ``[size]`` bool."""
    alive, so_far = processes.fetch((state.alive, state.stopping))
    found: np.ndarray = (alive & ~so_far.stopped if so_far else alive)[:size]
    return found


def cut(chunk: Chunk) -> Chunk:
    """A chunk up to the iteration in which its last member stopped, whose metrics are on the host.

    Where nobody stops early it stays whole. What its state went through after that has changed no learner.
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
    state: TrainState, found: dict[str, Any], target: float, iteration: int, layout: population.Layout
) -> TrainState:
    """A state whose members have stopped after ``iteration`` if they still learned and have reached ``target`` in an
    evaluation (`evaluation.prepare`)."""
    returns = np.array(found["return_per_seed"])
    reached = (returns >= target) & learning(state, len(returns))
    everyone = trees.fill(reached, len(state.alive))
    now = stopping.stopped_by(processes.fetch(state.stopping), everyone, iteration)
    return state._replace(stopping=population.place(now, layout))


def stopped_at(state: TrainState, size: int, trainer: Trainer) -> list[int | None]:
    """After how many frames each of the first ``size`` members stopped early; None: it did not."""
    if not state.stopping:
        return [None] * size
    return [
        at if at is None else trainer.frames(at) for at in stopping.iterations(processes.fetch(state.stopping))[:size]
    ]
