"""Selection among the configurations of a sweep while they train, by the operations of `population.selection`."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from purerl import backend, processes, trees
from purerl.errors import ConfigError
from purerl.loops import stopping
from purerl.population import layouts, planning, selection
from purerl.runs.describing import select_options
from purerl.runs.describing.description import Setup
from purerl.runs.describing.select_options import HALVING, PBT
from purerl.runs.describing.sweeps import configurations
from purerl.runs.running.device_program import RunProgram, compile_program
from purerl.runs.running.early_stopping import Means
from purerl.store import checkpoint, guards, metrics
from purerl.types import PyTree, TrainState

SELECTION_SALT = 2**31 + 6
"""Folded into the key of the first seed for the randomness of selections, so that they use no key of a training."""
ABOUT = "select"
"""The entry of the description of a checkpoint that has the state of the selection."""


class Selected(NamedTuple):
    """The result of a selection, or of the end of the training, when nothing is selected.

    - ``state``: the state of the members to go on with; `Selection.members` has what they train with.
    - ``lines``: the lines of the log.
    - ``unknown``: how many members were ranked last because none of their episodes has ever ended.
    """

    state: TrainState
    lines: list[str]
    unknown: int


def compile_selected(setup: Setup, batch_size: int | str, **options: Any) -> RunProgram:
    """Compiles the training of a run's members, and the selection among them if there is one.

    Args:
        setup: The run.
        batch_size: As for `compile_program`; with a selection all members are trained at once.
        **options: Further arguments of `compile_program`.

    Raises:
        ConfigError: As there; or the training is too short for a selection.
        planning.DoesNotFit: As there; or the selection does not fit into memory.
    """
    batch_size = setup.members.size if len(setup.intervals) > 1 else batch_size
    resting = setup.select.get("kind") == HALVING
    if stream := setup.trainer.stream:
        return compile_program(setup.make_trainer, setup.members, batch_size, stream=stream, **options)
    data = setup.data() or None
    program = compile_program(setup.make_trainer, setup.members, batch_size, resting=resting, data=data, **options)
    return program._replace(select=_compiled(program, setup)) if setup.select.get("kind") == PBT else program


def share(setup: Setup, program: RunProgram) -> float:
    """Returns the share of a whole training's time that a run takes: less if members stop that are computed alone."""
    if setup.select.get("kind") != HALVING or program.chunk.layout.lanes > 1:
        return 1.0
    num_iterations = setup.config.num_iterations
    return setup.iterations(num_iterations) / (setup.members.size * num_iterations)


def _compiled(program: RunProgram, setup: Setup) -> jax.stages.Compiled:
    """Compiles the selection of population-based training.

    Raises:
        planning.DoesNotFit: It does not fit into memory.
    """
    layout, size = program.chunk.layout, setup.members.size
    limits: dict[str, Any] = {**select_options.ranges(setup.swept)}
    explore = selection.perturb(**limits)

    def select(key: Any, given: PyTree, state: TrainState, scores: Any) -> PyTree:
        own = trees.take(state, np.arange(size))
        given, own, parent = selection.exploited(
            key, given, own, scores, exploit=selection.truncation(), explore=explore
        )
        return given, trees.fill(own, layout.size), parent

    everywhere = NamedSharding(layout.mesh, PartitionSpec())
    states = jax.tree.map(lambda x: layout.sharding, program.like)
    traced = jax.jit(
        select,
        donate_argnums=2,
        in_shardings=(everywhere, everywhere, states, everywhere),
        out_shardings=(everywhere, states, everywhere),
    )
    shapes = trees.shapes((jax.random.key(0), setup.members.given))
    scores = jax.ShapeDtypeStruct((size,), np.float32)
    compiled = traced.lower(*shapes, program.like, scores).compile(backend.compiler_options())
    planning.check_program(compiled, layout.devices, f"{PBT} holds the states of all agents twice; train fewer")
    return compiled


class Selection:
    """The selection among the members of a run: what they train with, and their fitness in the interval so far.

    The fitness is the mean return of the episodes that ended since the last selection (`selection.mean_return`), which
    is added up iteration by iteration, so that it does not depend on how the clock cuts chunks. Where none ended it is
    what it was at the last selection, because long episodes may be good ones.
    """

    def __init__(self, setup: Setup, program: Any):
        self._setup = setup
        self._program: RunProgram = program  # the environments of the host are refused
        self._kind, self._intervals = setup.select["kind"], setup.intervals
        self._seeds = setup.members.size // configurations(setup.swept)
        self._since, self._means = 0, Means(setup.members.size)
        self._known = np.full(setup.members.size, np.nan, np.float32)  # the fitness at the last selection
        self.members = setup.members

    def begin(self, step: checkpoint.CheckpointStep | None, state: TrainState) -> None:
        """Begins with the members, or goes on from a checkpoint.

        Raises:
            ConfigError: The checkpoint does not have the state of this selection.
        """
        if step is not None:
            self._restore(step)
        self._note_running(state)

    def until(self, done: int) -> int:
        """Returns the iteration in which the interval ends that ``done`` iterations lead into."""
        return next((each.end for each in self._intervals if each.end > done), self._intervals[-1].end)

    def watch(self, metrics: dict[str, np.ndarray]) -> None:
        """Adds the episodes that ended in a chunk with ``metrics`` ``[iterations, P]``."""
        for count, value in zip(metrics["episodes"], metrics["episode_return"], strict=True):
            self._means.add(count, value)

    def select(self, done: int, state: TrainState, over: bool) -> Selected | None:
        """Selects among the members, if an interval ends after ``done`` iterations, or the training is ``over``."""
        if done not in (each.end for each in self._intervals) and not over:
            return None
        size = self.members.size
        alive = processes.fetch(state.alive)[:size]
        latest = self._means.values.astype(np.float32)
        fitness = np.asarray(selection.counted(np.where(np.isnan(latest), self._known, latest), alive))
        parent: list[int | None] = list(range(size))
        values, running = self.values, self.running
        last = over or done == self._intervals[-1].end
        unknown = 0 if last else int((alive & ~np.isfinite(fitness))[running].sum())
        if not last and self._kind == HALVING:
            state, dropped = self._halved(done, state, fitness)
            parent = [None if dropped[i] else i for i in range(size)]
        elif not last and np.isfinite(fitness).any():  # otherwise nothing is known of any
            state, parent = self._exploited(done, state, fitness)
        lines = self._lines(done, fitness, parent, values, running)
        kept = fitness[[i if taken is None else taken for i, taken in enumerate(parent)]]
        self._since, self._means, self._known = done, Means(size), np.where(np.isfinite(kept), kept, np.nan)
        self._note_running(state)
        return Selected(state, lines, unknown)

    @property
    def values(self) -> dict[str, list[float]]:
        """The values of the swept fields that the members train with, by name, each ``[P]``.

        They have the fewest digits from which float32 makes the same number.
        """
        config = self.members.given["config"]
        return {name: [float(str(x)) for x in np.asarray(getattr(config, name))] for name in self._setup.swept}

    @property
    def swept(self) -> dict[str, list[float]]:
        """The values of the configurations."""
        return {name: column[:: self._seeds] for name, column in self.values.items()}

    def about(self) -> dict[str, Any]:
        """Returns the state of the selection for the description of a checkpoint."""
        sums = {"total": self._means.total.tolist(), "ended": self._means.ended.tolist()}
        known = [float(x) if np.isfinite(x) else None for x in self._known]
        return {ABOUT: {"since": self._since, **sums, "fitness": known, "values": self.values}}

    def _restore(self, step: checkpoint.CheckpointStep) -> None:
        saved, size = step.about.get(ABOUT), self.members.size
        values = saved.get("values") if isinstance(saved, dict) else None
        if not isinstance(saved, dict) or not isinstance(values, dict) or set(values) != set(self._setup.swept):
            raise ConfigError(f"{step.path}: has no state of the selection")
        fitness = [0.0 if x is None else x for x in guards.listed(saved, "fitness")]
        columns = [guards.listed(saved, "total"), guards.listed(saved, "ended"), fitness, *values.values()]
        known = all(isinstance(x, list) and len(x) == size and all(map(guards.is_number, x)) for x in columns)
        limits = select_options.ranges(self._setup.swept)
        within = known and all(
            np.float32(low) <= np.float32(x) <= np.float32(high)
            for name, (low, high) in limits.items()
            for x in values[name]
        )
        counts = [saved.get("since"), *guards.listed(saved, "ended")]
        if not within or not all(type(x) is int and 0 <= x < 2**53 for x in counts):
            raise ConfigError(f"{step.path}: its state of the selection does not fit the run")
        self._since, self._known = saved["since"], np.array(saved["fitness"], np.float32)
        self._means = Means(size, np.array(saved["total"], np.float64), np.array(saved["ended"], np.int64))
        given = self.members.given
        arrays = {name: jnp.asarray(np.array(column, np.float32)) for name, column in values.items()}
        config = dataclasses.replace(given["config"], **arrays)
        self.members = self.members._replace(given={**given, "config": config})

    def _note_running(self, state: TrainState) -> None:
        """Notes which members take frames: all but those that halving has stopped."""
        size = self.members.size
        stopped = processes.fetch(state.stopping.stopped)[:size] if state.stopping else np.zeros(size, bool)
        self.running = np.flatnonzero(~stopped)

    def _halved(self, done: int, state: TrainState, fitness: np.ndarray) -> tuple[TrainState, np.ndarray]:
        """Stops the worse half of the configurations that run; returns which members ``[P]`` (bool) these are.

        The fitness of a configuration is the mean over its seeds.
        """
        of_configurations = fitness.reshape(-1, self._seeds).mean(axis=1)
        ran = np.isin(np.arange(len(of_configurations)), self.running // self._seeds)
        kept = next(each.configurations for each in self._intervals if each.end > done)
        order = np.asarray(selection.best_first(of_configurations, ran))
        dropped = np.zeros(len(order), bool)
        dropped[order[kept : ran.sum()]] = True
        members = np.repeat(dropped, self._seeds)
        everyone = trees.fill(members, len(state.alive))
        now = stopping.stopped_by(processes.fetch(state.stopping), everyone, done)
        return state._replace(stopping=layouts.place(now, self._program.chunk.layout)), members

    def _exploited(self, done: int, state: TrainState, fitness: np.ndarray) -> tuple[TrainState, list[int | None]]:
        """Lets the worst members go on from the best ones; returns whose state each took, as ``parent`` ``[P]``."""
        select: Any = self._program.select
        key = jax.random.fold_in(jax.random.key(self._setup.labels[0]["seed"]), SELECTION_SALT)
        everywhere = NamedSharding(self._program.chunk.layout.mesh, PartitionSpec())
        place = functools.partial(jax.device_put, device=everywhere)
        shared = place((jax.random.fold_in(key, done), self.members.given))
        given, state, parent = select(*shared, state, place(fitness))
        self.members = self.members._replace(given=jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), given))
        return state, np.asarray(parent).tolist()

    def _lines(
        self,
        done: int,
        fitness: np.ndarray,
        parent: list[int | None],
        values: dict[str, list[float]],
        running: np.ndarray,
    ) -> list[str]:
        """Formats a line of the log for each member that took frames in the interval."""
        trainer = self._setup.trainer
        before = trainer.counted(self._since) if self._since else 0
        frames = trainer.counted(done)
        return [
            metrics.line(
                {
                    "iteration": done,
                    "agent": int(i),
                    **self._setup.labels[i],
                    "env_steps": frames,
                    "frames": frames - before,
                    "fitness": float(fitness[i]) if np.isfinite(fitness[i]) else None,
                    "parent": parent[i],
                    **{f"values.{name}": column[i] for name, column in values.items()},
                }
            )
            for i in running
        ]
