"""The training of a run's members, batch after batch, with logs and checkpoints, until the end or an interrupt."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import population, processes, trees
from purerl.curricula import Buffer
from purerl.display import progress
from purerl.errors import ConfigError, HostError
from purerl.interrupts import Interrupted
from purerl.loops.seat_metrics import first_share
from purerl.runs.describing import stop_options
from purerl.runs.describing.run_directory import CHECKPOINTS, METRICS
from purerl.runs.reading.evaluation import Plays, columns
from purerl.runs.running import early_stopping, logs, run_loop
from purerl.runs.running.device_program import RunProgram
from purerl.runs.running.host_program import HostProgram
from purerl.runs.running.run import ResumePoint, Run
from purerl.runs.running.run_loop import Chunk
from purerl.runs.running.saved_policies import Best
from purerl.runs.running.selecting import Selection
from purerl.store import log, metrics
from purerl.store.checkpoint import saver
from purerl.types import PyTree, TrainState

ENDLESS_SECONDS = 60.0
"""Seconds of a training in which no episode has ended after which this is told; an evaluation may then take as long."""


class Trained(NamedTuple):
    """The result of training the members of a run.

    - ``policy``: the policies ``[P]``, on the host.
    - ``critics``: the critics ``[P]`` by name (`Learner.critics`), on the host.
    - ``buffer``: the levels ``[P]`` of curricula that have a buffer; None without one.
    - ``alive``: for each member whether it is alive, which means that it has not diverged.
    - ``counted``: the frames of each member, or its updates (`Trainer.counted`).
    - ``stopped_at``: the number of frames after which each member stopped early; None: it did not.
    - ``seconds``: the seconds that the training took in all.
    - ``ended``: whether any episode has ended.
    - ``faults``: what was not finite first in each member that diverged, and in which iteration; None: it is alive.
    - ``swept``: the values that the configurations had at the end.
    """

    policy: PyTree
    critics: dict[str, PyTree]
    buffer: Buffer | None
    alive: list[bool]
    counted: list[int]
    stopped_at: list[int | None]
    seconds: float
    ended: bool
    faults: list[tuple[str, int] | None]
    swept: dict[str, list[float]]

    @property
    def evaluation_seconds(self) -> float:
        """The most seconds of an evaluation in environments of the host: if no episode has ended, none may ever."""
        return evaluation_seconds(self.ended, self.seconds)


def evaluation_seconds(ended: bool, seconds: float) -> float:
    """Returns the most seconds of an evaluation after ``seconds`` of training, in which episodes have ``ended``."""
    return math.inf if ended else max(ENDLESS_SECONDS, seconds)


def unknown(agents: int, frames: int) -> str:
    """Returns a line about agents of which no episode has ended after ``frames`` of each, when they are selected."""
    what = f"no episode of {agents} agent{'s'[: agents != 1]} has ended after {frames:,} frames"
    return f"{what}: they rank last in the selection; a larger --select-every waits longer"


def endless(run: Run, frames: int) -> str:
    """Returns a line about a training of which no episode has ended after ``frames`` of each member."""
    copies = run.setup.trainer.fleet.env_steps
    each = f"{copies:,} cop{'y' if copies == 1 else 'ies'}" + (" of each agent" if run.setup.members.size > 1 else "")
    return (
        f"no episode has ended after {frames // copies:,} steps of {each}, so that no return is known; "
        "--env-params max_episode_steps=N ends each after N steps"
    )


class Training:
    """The training of a run's members, batch after batch: its state, and what happens after each chunk.

    Of several processes the first one logs, evaluates, and decides for all.

    Args:
        run: The run.
        program: Its compiled program.
        so_far: The state that the training continues from.
        interrupted: The list into which received signals are put. A signal on any process ends the training.
        plays: Evaluates policies during the training, if the options ask for that; its time is not counted.
    """

    index: int
    """The number of the batch that is trained; ``batch`` has its members, ``state`` and ``done`` say how far it is."""
    batch: population.Members
    state: TrainState
    done: int

    def __init__(
        self,
        run: Run,
        program: RunProgram | HostProgram,
        so_far: ResumePoint,
        interrupted: list[int],
        plays: Plays | None = None,
    ):
        self.run, self.program, self.so_far, self.interrupted, self.plays = run, program, so_far, interrupted, plays
        self.trainer, self.num_iterations = run.setup.trainer, run.setup.config.num_iterations
        self.clock = run_loop.Clock(so_far.seconds)
        self.selection = Selection(run.setup, program) if run.description.select else None
        self.until_save = run_loop.Timer(run.options.checkpoint_seconds)
        self.best = Best(run.directory, run.description, run.setup, run.console) if run.options.keep_best else None
        self.every = math.ceil(run.options.eval_every / self.trainer.counts) if plays else 0
        self.policy_of = jax.vmap(self.trainer.learner.policy)
        self.digest = run.description.digest
        self.trained = 0  # frames in this process
        ended = any(so_far.done) and any(row.get("episodes") for row in log.rows(run.directory / METRICS))
        self.ended = ended or bool(self.trainer.updates)  # recorded episodes have all ended
        self.told_that_none_ended = self.told_that_some_are_unknown = False
        self.game = first_share(self.trainer.fleet.env)
        self.playing = False
        self.over = False
        self.failed: HostError | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens the logs, the saver and the progress report, and closes the program at the end."""
        run, so_far = self.run, self.so_far
        total = self.trainer.counts * self._iterations_left()
        known = metrics.Known(self.trainer.counted(max(so_far.done)), so_far.seconds, self.trainer.axis)
        activity = lambda: (0, "evaluating") if self.playing else self.program.under_way()
        with contextlib.ExitStack() as stack:
            self.logs, self.saving = stack.enter_context(logs.opened(run, known)), stack.enter_context(saver())
            stack.callback(self.program.close)
            self.clock.restart()  # the time of loggers does not count
            what = "return" if self.game is None else "% won by seat 0:"
            what = "loss" if self.trainer.updates else what
            showing = progress.show(run.console, max(1, total), self.clock.seconds, activity, what, self.trainer.unit)
            self.report = stack.enter_context(showing)
            yield

    def _iterations_left(self) -> int:
        """Returns the iterations that are left of all members together."""
        if self.selection:
            done = [self.run.setup.iterations(until) for until in (self.so_far.done[0], self.num_iterations)]
            return done[1] - done[0]
        left = [self.num_iterations - done for done in self.so_far.done]
        members = counts(self.run.setup.members.size, self.program.chunk.batch_size)
        return sum(a * b for a, b in zip(left, members, strict=True))

    def begin(self, index: int, ready: Callable[[int], None]) -> None:
        """Begins to train a batch; of the first one it opens the environments of the evaluations by ``ready``."""
        size, options = self.program.chunk.batch_size, self.run.options
        self.index, self.first = index, index * size
        self.batch = trees.take(self.run.setup.members, slice(self.first, self.first + size))
        step, self.done = self.so_far.steps[index], self.so_far.done[index]
        self.state = self.program.begin(self.batch, step)
        if self.selection:
            self.selection.begin(step, self.state)
        self.until_save.restart()
        if self.plays and index == 0:
            _opened(options.eval_every, ready, self.batch.size)
        self.over, self.failed = False, None
        stop = self.run.description.stop
        self.watched = (
            early_stopping.Watched(self.batch.size, stop) if stop_options.by_host(stop, self.trainer) else None
        )
        self._go_on_from(self.state)

    def _go_on_from(self, state: TrainState) -> None:
        """Continues with ``state`` in place of what the last chunk led to, and with the members of the selection."""
        if self.selection:
            self.batch = self.selection.members
        running = self.selection.running if self.selection else slice(None)
        labels = np.array(self.run.setup.labels[self.first : self.first + self.batch.size])[running].tolist()
        config = jax.tree.map(lambda x: np.asarray(x)[running], self.batch.given["config"])
        self.ran = logs.Ran(self.first, running, labels, config)
        self.state = state
        until = self.selection.until(self.done) if self.selection else self.num_iterations
        self.paced = self.program.chunks(self.batch, state, self.done, until, self.every)

    def goes_on(self) -> bool:
        """Tells whether a member of the batch still learns, and nothing has ended the training."""
        learns = not self.over and early_stopping.learning(self.state, self.batch.size).any()
        return bool(learns) and not run_loop.is_interrupted(self.interrupted)

    def advance(self) -> Chunk | None:
        """Runs a chunk. What ends it without one is kept as ``failed``, if it was an error."""
        try:
            chunk = next(self.paced, None)
        except HostError as error:  # the progress so far is saved
            self.failed = error
            return None
        except (Interrupted, KeyboardInterrupt):
            if not self.interrupted:
                raise
            return None
        return None if chunk is None else early_stopping.cut(chunk)

    def log(self, chunk: Chunk) -> None:
        """Logs and reports a chunk."""
        ran = self.ran.of(chunk.metrics)
        written = functools.partial(self.logs.chunk, chunk._replace(state=(), metrics=ran), self.done + 1, self.ran)
        self.saving.later(functools.partial(written, self.clock.seconds()))
        self.trained += (chunk.done - self.done) * self.trainer.counts * len(self.ran.labels)
        self.state, self.done = chunk.state, chunk.done
        self.report(self.trained, self._latest(ran), int(ran["alive"][-1].sum()))
        self.ended = self.ended or bool(chunk.metrics["episodes"].any())
        if not self.ended and not self.told_that_none_ended and self.clock.seconds() >= ENDLESS_SECONDS:
            self.told_that_none_ended = True
            progress.say(self.run.console, endless(self.run, self.trainer.counted(self.done)))
        if self.best:
            self.best.watch(chunk.metrics)

    def _latest(self, metrics_of_chunk: dict[str, np.ndarray]) -> np.ndarray:
        """Returns what the report shows of a chunk's members ``[P]``: their returns, or else their last losses."""
        if self.trainer.updates:
            return metrics_of_chunk["loss"][-1]
        return metrics.returns(metrics_of_chunk, self.game or "episode_return") * (100 if self.game else 1)

    def evaluate(self, chunk: Chunk) -> None:
        """Evaluates the members, if it is time; what their evaluation decides is `stop`'s to do."""
        self.evaluated = None
        if not self.plays or not (self.done % self.every == 0 or self.done == self.num_iterations):
            return
        with self.clock.stopped():
            self.playing = True
            try:
                policy, most = self.policies(), evaluation_seconds(self.ended, self.clock.seconds())
                played = self.plays(policy, first=self.first, seconds=most) if processes.is_first() else None
                self.evaluated = processes.from_first(played)
            except HostError as error:
                self.over, self.failed = True, error
                return
            except Interrupted:
                self.over = True
                return
            finally:
                self.playing = False
            self.saving.later(functools.partial(self.logs.evaluation, columns(self.evaluated), self.done, self.ran))

    def stop(self, chunk: Chunk) -> None:
        """Stops the members that have reached their target, as environments of the host or an evaluation tell it."""
        stop, layout = self.run.description.stop, self.program.chunk.layout
        if self.watched:
            self._go_on_from(early_stopping.stopped(self.state, self.watched.reached(chunk.metrics), self.done, layout))
        if self.evaluated and stop_options.by_evaluations(stop):
            self._go_on_from(early_stopping.after_evaluation(self.state, self.evaluated, stop["at"], self.done, layout))

    def select(self, chunk: Chunk) -> None:
        """Selects among the members, if it is time, and logs it."""
        if not self.selection:
            return
        self.selection.watch(chunk.metrics)
        over = not early_stopping.learning(self.state, self.batch.size).any()
        if selected := self.selection.select(self.done, self.state, over):
            self.saving.later(functools.partial(self.logs.selection, selected.lines))
            if selected.unknown and not self.told_that_some_are_unknown:
                self.told_that_some_are_unknown = True
                progress.say(self.run.console, unknown(selected.unknown, self.trainer.counted(self.done)))
            self._go_on_from(selected.state)

    def save(self, chunk: Chunk) -> None:
        """Saves a checkpoint, if it is time."""
        if not self.over and self.until_save.is_due():
            self.checkpoint()
            self.until_save.restart()

    def checkpoint(self) -> None:
        """Saves a checkpoint of the batch, and the best policies so far."""
        path = self.run.directory / CHECKPOINTS / str(self.index)
        batch_size, seconds = self.program.chunk.batch_size, self.clock.seconds()
        about = {"batch_size": batch_size, "seconds": seconds, "config_sha256": self.digest}
        about |= self.selection.about() if self.selection else {}
        if self.done:
            keeping = {"keep": self.run.options.keep, "logs": self.logs.files, "rows": self.batch.size}
            self.saving.save(path, self.done, self.state, about, **keeping)
        if self.best:
            self.best.keep(self.first, processes.fetch(self.policy_of(self.state.learner)))

    def policies(self) -> PyTree:
        """Returns the policies of the batch's members, on the host."""
        return self._on_host(self.policy_of(self.state.learner))

    def _critics(self) -> dict[str, PyTree]:
        """Returns the critics of the batch's members by name, on the host."""
        read = self.trainer.learner.critics
        critics: dict[str, PyTree] = self._on_host(jax.vmap(read)(self.state.learner)) if read else {}
        return critics

    def _on_host(self, tree: PyTree) -> PyTree:
        """Returns a tree of the rows of a program, of the members alone, on the host."""
        return jax.tree.map(lambda x: np.asarray(x)[: self.batch.size], processes.fetch(tree))

    def trained_batch(self) -> Trained:
        """Returns the result of the batch."""
        size, state, buffer = self.batch.size, self.state, None
        if hasattr(state.curriculum, "buffer"):
            buffer = trees.take(processes.fetch(state.curriculum.buffer), slice(0, size))
        stopped_at = early_stopping.stopped_at(state, size, self.trainer)
        frames = self.trainer.counted(self.done)
        return Trained(
            self.policies(),
            self._critics(),
            buffer,
            processes.fetch(state.alive)[:size].tolist(),
            [frames if at is None or not self.selection else at for at in stopped_at],
            stopped_at,
            self.clock.seconds(),
            self.ended,
            early_stopping.faults(state, size),
            self.selection.swept if self.selection else self.run.description.swept,
        )


def train_batches(
    run: Run,
    program: RunProgram | HostProgram,
    so_far: ResumePoint,
    interrupted: list[int],
    plays: Plays | None = None,
    ready: Callable[[int], None] = lambda members: None,
) -> Trained:
    """Trains every batch to its end, with logs and checkpoints.

    An interrupt ends the training after the current chunk, or the current step of the host's environments.

    Args:
        run: As for `Training`, which has all but the next.
        program: Its compiled program, which is closed at the end.
        so_far: The state that the training continues from.
        interrupted: The list into which received signals are put.
        plays: Evaluates policies during the training.
        ready: Opens the environments of the host in which ``plays`` plays with so many members, beside those of the
            training, so that what cannot be made is refused before the training.

    Returns:
        The result; after an interrupt it holds the members of the batches that had begun.

    Raises:
        Interrupted: A signal came before the first batch had begun.
        HostError: The environments of the host failed. What was learned until then is saved.
        ConfigError: Environments of the host cannot be made.
        OSError: Nothing more can be written. What was saved stays.
    """
    training = Training(run, program, so_far, interrupted, plays)
    parts: list[Trained] = []
    with training.opened():
        for index in range(len(so_far.steps)):
            try:
                training.begin(index, ready)
            except Interrupted:
                if not parts:
                    raise
                break
            run_loop.follow(training, training.log, training.evaluate, training.stop, training.select, training.save)
            training.checkpoint()
            if training.failed:
                raise training.failed
            parts.append(training.trained_batch())
            if run_loop.is_interrupted(interrupted):
                break
        training.saving.wait()
        seconds = training.clock.seconds()
    return _joined(parts)._replace(seconds=seconds)


def _joined(parts: list[Trained]) -> Trained:
    """Joins the results of batches, one after another."""
    arrays = lambda *x: np.concatenate(x)
    several = lambda lists: list(itertools.chain(*lists))
    buffers = [part.buffer for part in parts if part.buffer is not None]
    return parts[-1]._replace(
        policy=jax.tree.map(arrays, *(part.policy for part in parts)),
        critics=jax.tree.map(arrays, *(part.critics for part in parts)),
        buffer=jax.tree.map(lambda *x: jnp.concatenate(x), *buffers) if buffers else None,
        alive=several(part.alive for part in parts),
        counted=several(part.counted for part in parts),
        stopped_at=several(part.stopped_at for part in parts),
        faults=several(part.faults for part in parts),
    )


def counts(size: int, batch_size: int) -> list[int]:
    """Returns how many of ``size`` members each batch has."""
    return [min(batch_size, size - first) for first in range(0, size, batch_size)]


def _opened(every: int, ready: Callable[[int], None], members: int) -> None:
    """Calls ``ready``, whose `ConfigError` gets a word about ``eval_every``."""
    try:
        ready(members)
    except ConfigError as error:
        raise ConfigError(
            f"eval_every = {every}: evaluations during the training have copies of their own, beside those of the"
            f" training: {error}"
        ) from error.__cause__
