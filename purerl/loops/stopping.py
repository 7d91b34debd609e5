"""Early stopping: a training whose return has reached a target stops learning. Each member does so by itself."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import counters, trees
from purerl.counters import Count
from purerl.types import Array, Key, Metrics, Trainer, TrainState

__all__ = ["Stopping", "iterations", "stop_at"]


class Stopping(NamedTuple):
    """The state of early stopping.

    ``stopped`` (bool) is whether a training has stopped, and ``at`` after which iteration; ``total`` is the sum of the
    returns and ``ended`` (int32) the number of the episodes that ended since the last check.
    """

    stopped: Array
    at: Count
    total: Array
    ended: Array


def stop_at(trainer: Trainer, target: Any, episodes: int = 1, metric: str = "episode_return") -> Trainer:
    """Makes a trainer whose learner no longer changes once the mean return has reached ``target``.

    A check takes place after each iteration by which ``episodes`` or more episodes have ended since the last check; it
    takes the mean return of these, or of another ``metric`` that is a mean over the episodes that ended. The
    environments continue under the policy that stays, so that members of a population keep step. Metrics also have
    ``stopped`` (bool).

    Args:
        trainer: The trainer.
        target: A number or a tracer. With None the program does not check, and its caller decides which members stop
            (`stopped_by`).
        episodes: The least number of episodes of a check.
        metric: The name of the metric.
    """

    def looked_at(begin: Callable[[Key], TrainState]) -> Callable[[Key], TrainState]:
        nothing = Stopping(jnp.zeros((), bool), counters.of(), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return lambda key: begin(key)._replace(stopping=nothing)

    def stop(before: TrainState, after: TrainState, metrics: Metrics) -> tuple[TrainState, Metrics]:
        so_far: Stopping = before.stopping
        kept = lambda old, new: jax.tree.map(lambda o, n: jnp.where(so_far.stopped, o, n), old, new)
        learner, alive = kept((before.learner, before.alive), (after.learner, after.alive))
        stopping = so_far if target is None else _looked(so_far, after.iteration, alive, metrics)
        after = after._replace(learner=learner, alive=alive, stopping=stopping)
        return after, {**metrics, "alive": alive, "stopped": stopping.stopped}

    def _looked(so_far: Stopping, iteration: Count, alive: Array, metrics: Metrics) -> Stopping:
        count = metrics["episodes"]
        total = so_far.total + jnp.where(count > 0, metrics[metric] * count, 0.0)
        ended = so_far.ended + count
        enough = ended >= episodes
        now = enough & alive & ~so_far.stopped & (total / jnp.maximum(ended, 1) >= target)
        at = jax.tree.map(lambda new, old: jnp.where(now, new, old), iteration, so_far.at)
        return Stopping(so_far.stopped | now, at, jnp.where(enough, 0.0, total), jnp.where(enough, 0, ended))

    begin = trainer.begin and looked_at(trainer.begin)
    return trainer._replace(init=looked_at(trainer.init), begin=begin, stop=stop)


def stopped_by(stopping: Stopping, now: np.ndarray, iteration: int) -> Stopping:
    """Returns members ``[P]`` of which those in ``now`` (bool) have stopped after ``iteration``, as numpy arrays."""
    had = jax.tree.map(np.asarray, stopping)
    now = now & ~had.stopped
    at = jax.tree.map(lambda new, old: np.where(now, np.asarray(new), old), counters.of(iteration), had.at)
    return had._replace(stopped=had.stopped | now, at=at)


def iterations(stopping: Stopping) -> list[int | None]:
    """Returns the iteration after which each of the members ``[P]`` stopped; None for one that has not."""
    had = jax.tree.map(np.asarray, stopping)
    return [counters.number(trees.take(had.at, i)) if had.stopped[i] else None for i in range(len(had.stopped))]
