"""The training of a run's members, batch after batch, with logs and checkpoints, until the end or an interrupt."""

import contextlib
import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import processes, trees
from purerl.curricula import Buffer
from purerl.display import progress
from purerl.errors import ConfigError, HostError
from purerl.runs.describing import config_file, early
from purerl.runs.describing.directory import CHECKPOINTS, EVALUATIONS, METRICS, QUANTILES, TIMES
from purerl.runs.describing.interrupts import Interrupted
from purerl.runs.reading.evaluation import Plays
from purerl.runs.running import ending, logs, session
from purerl.runs.running.best import Best
from purerl.runs.running.host_program import HostProgram
from purerl.runs.running.program import RunProgram
from purerl.runs.running.session import Run
from purerl.store import checkpoint, log, loggers, metrics, untrusted
from purerl.store.saver import saver
from purerl.types import PyTree

ENDLESS_SECONDS = 60.0
"""Seconds of a training in which no episode has ended after which this is told; an evaluation may then take as long."""


class Progress(NamedTuple):
    """The state that training resumes from.

    - ``steps``: for each batch of members the checkpoint that it continues from; None: it begins at its start.
    - ``seconds``: the seconds of training that were spent before.
    """

    steps: list[checkpoint.CheckpointStep | None]
    seconds: float = 0.0

    @property
    def done(self) -> list[int]:
        """The number of finished iterations of each batch."""
        return [step.number if step else 0 for step in self.steps]


class Trained(NamedTuple):
    """The result of training the members of a run.

    - ``policy``: the policies ``[P]``, on the host.
    - ``buffer``: the levels ``[P]`` of curricula that have a buffer; None without one.
    - ``alive``: for each member whether it is alive, which means that it has not diverged.
    - ``env_steps``: the frames of each member.
    - ``stopped_at``: the number of frames after which each member stopped early; None: it did not.
    - ``seconds``: the seconds that the training took in all.
    - ``ended``: whether any episode has ended.
    - ``faults``: what was not finite first in each member that diverged, and in which iteration; None: it is alive.
    """

    policy: PyTree
    buffer: Buffer | None
    alive: list[bool]
    env_steps: list[int]
    stopped_at: list[int | None]
    seconds: float
    ended: bool
    faults: list[tuple[str, int] | None]

    @property
    def evaluation_seconds(self) -> float:
        """The most seconds of an evaluation in environments of the host: if no episode has ended, none may ever."""
        return evaluation_seconds(self.ended, self.seconds)


def evaluation_seconds(ended: bool, seconds: float) -> float:
    """Returns the most seconds of an evaluation after ``seconds`` of training, in which episodes have ``ended``."""
    return math.inf if ended else max(seconds, ENDLESS_SECONDS)


def endless(run: Run, frames: int) -> str:
    """Returns a line about a training of which no episode has ended after ``frames`` of each member."""
    copies = run.setup.trainer.fleet.env_steps
    each = f"{copies:,} cop{'y' if copies == 1 else 'ies'}" + (" of each agent" if run.setup.members.size > 1 else "")
    return (
        f"no episode has ended after {frames // copies:,} steps of {each}, so that no return is known; "
        "--env-params max_episode_steps=N ends each after N steps"
    )


def train_batches(
    run: Run,
    program: RunProgram | HostProgram,
    so_far: Progress,
    interrupted: list[int],
    plays: Plays | None = None,
    ready: Callable[[int], None] = lambda members: None,
) -> Trained:
    """Trains every batch to its end, with logs and checkpoints.

    An interrupt ends the training after the current chunk, or the current step of the host's environments. Of several
    processes the first one logs, evaluates, and decides for all.

    Args:
        run: The run.
        program: Its compiled program, which is closed at the end.
        so_far: The state that the training continues from.
        interrupted: The list into which received signals are put. A signal on any process ends the training.
        plays: Evaluates policies during the training, if the options ask for that; its time is not counted.
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
    setup, directory, options = run.setup, run.directory, run.options
    size, batch_size, num_iterations = setup.members.size, program.chunk.batch_size, setup.config.num_iterations
    trainer, digest = setup.trainer, config_file.digest(run.description._asdict())
    start = time.perf_counter()
    elapsed = lambda: so_far.seconds + time.perf_counter() - start
    every = math.ceil(options.eval_every / trainer.env_steps) if plays else 0
    best = Best(directory, run.description, setup, run.console) if options.keep_best else None
    stop = run.description.stop
    policies: list[PyTree] = []
    buffers, alive, env_steps, stopped_at, faults, trained = [], [], [], [], [], 0
    policy_of = jax.vmap(trainer.learner.policy)
    ended = any(so_far.done) and any(row.get("episodes") for row in log.rows(directory / METRICS))
    told = False
    total = trainer.env_steps * sum(
        (num_iterations - done) * count for done, count in zip(so_far.done, counts(size, batch_size), strict=True)
    )
    with contextlib.ExitStack() as stack:
        known = loggers.Known(trainer.frames(max(so_far.done)), so_far.seconds)
        written, saving = stack.enter_context(logs.opened(run, known)), stack.enter_context(saver())
        stack.callback(program.close)
        start = time.perf_counter()  # excludes the time of loggers
        playing = False
        activity = lambda: (0, "evaluating") if playing else program.under_way()
        report = stack.enter_context(progress.show(run.console, max(1, total), elapsed, activity))

        def save(index: int, done: int, state: PyTree, batch: int) -> None:
            path = directory / CHECKPOINTS / str(index)
            about = {"batch_size": batch_size, "seconds": elapsed(), "config_sha256": digest}
            if done:
                saving.save(path, done, state, about, keep=options.keep, logs=written.files, rows=batch)
            if best:
                best.keep(index * batch_size, processes.fetch(policy_of(state.learner)))

        def on_host(state: PyTree, batch: int) -> PyTree:
            return jax.tree.map(lambda x: np.asarray(x)[:batch], processes.fetch(policy_of(state.learner)))

        for index, step in enumerate(so_far.steps):
            first = index * batch_size
            batch = trees.take(setup.members, slice(first, first + batch_size))
            try:
                state, done, saved = program.begin(batch, step), so_far.done[index], time.perf_counter()
                if plays and index == 0:
                    _opened(options.eval_every, ready, batch.size)
            except Interrupted:
                if not policies:
                    raise
                break
            learning, failed = ending.learning(state, batch.size), None
            paced = program.chunks(batch, state, done, num_iterations, every)
            watched = ending.Watched(batch.size, stop) if early.by_host(stop, trainer) else None
            while learning.any() and not session.is_interrupted(interrupted):
                try:
                    chunk = next(paced, None)
                except HostError as error:  # the progress so far is saved
                    failed = error
                    break
                except (Interrupted, KeyboardInterrupt):
                    if not interrupted:
                        raise
                    break
                if chunk is None:
                    break
                chunk = ending.cut(chunk)
                state = chunk.state
                saving.later(functools.partial(written.chunk, chunk._replace(state=()), done + 1, first, elapsed()))
                trained += (chunk.done - done) * trainer.env_steps * batch.size
                done = chunk.done
                if watched:
                    state = ending.stopped(state, watched.reached(chunk.metrics), done, program.chunk.layout)
                    paced = program.chunks(batch, state, done, num_iterations, every)
                report(trained, metrics.returns(chunk.metrics), int(chunk.metrics["alive"][-1].sum()))
                ended = ended or bool(chunk.metrics["episodes"].any())
                if not ended and not told and elapsed() >= ENDLESS_SECONDS:
                    told = True
                    progress.say(run.console, endless(run, trainer.frames(done)))
                if best:
                    best.watch(chunk.metrics)
                if plays and (done % every == 0 or done == num_iterations):
                    before, playing = time.perf_counter(), True
                    try:
                        policy, most = on_host(state, batch.size), evaluation_seconds(ended, elapsed())
                        played = plays(policy, first=first, seconds=most) if processes.is_first() else None
                        evaluated = processes.from_first(played)
                    except HostError as error:
                        failed = error
                        break
                    except Interrupted:
                        break
                    finally:
                        playing = False
                    saving.later(functools.partial(written.evaluation, evaluated, done, first))
                    start += time.perf_counter() - before
                    if early.by_evaluations(stop):
                        state = ending.after_evaluation(state, evaluated, stop["at"], done, program.chunk.layout)
                        paced = program.chunks(batch, state, done, num_iterations, every)
                learning = ending.learning(state, batch.size)
                due = options.checkpoint_seconds and time.perf_counter() - saved >= options.checkpoint_seconds
                if processes.from_first(bool(due)):
                    save(index, done, state, batch.size)
                    saved = time.perf_counter()
            save(index, done, state, batch.size)
            if failed:
                raise failed
            policies.append(on_host(state, batch.size))
            if hasattr(state.curriculum, "buffer"):
                buffers.append(trees.take(processes.fetch(state.curriculum.buffer), slice(0, batch.size)))
            alive += processes.fetch(state.alive)[: batch.size].tolist()
            faults += ending.faults(state, batch.size)
            stopped_at += ending.stopped_at(state, batch.size, trainer)
            env_steps += [trainer.frames(done)] * batch.size
            if session.is_interrupted(interrupted):
                break
        saving.wait()
        seconds = elapsed()
    policy = jax.tree.map(lambda *x: np.concatenate(x), *policies)
    buffer = jax.tree.map(lambda *x: jnp.concatenate(x), *buffers) if buffers else None
    return Trained(policy, buffer, alive, env_steps, stopped_at, seconds, ended, faults)


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


def cut_logs(run: Run, batch_size: int, done: list[int]) -> None:
    """Cuts the logs of a run to the rows that its checkpoints count.

    Args:
        run: The run.
        batch_size: The number of members in a batch.
        done: The number of finished iterations of each batch.

    Raises:
        ConfigError: Some of the rows that the checkpoints count are lost.
    """
    labels = run.setup.labels
    names, batch_of = list(labels[0]), {tuple(label.values()): i // batch_size for i, label in enumerate(labels)}
    first_of: dict[float | None, int] = {index * batch_size: index for index in range(len(done))}

    def is_saved(batch: int | None, row: dict[str, Any]) -> bool:
        iteration = untrusted.number(row.get("iteration"))
        return batch is not None and iteration is not None and iteration <= done[batch]

    of_member = lambda row: is_saved(batch_of.get(tuple(untrusted.number(row.get(name)) for name in names)), row)
    of_batch = lambda row: is_saved(first_of.get(untrusted.number(row.get("first_member"))), row)
    sizes = counts(len(labels), batch_size)
    log.cut(run.directory / METRICS, of_member, sum(n * size for n, size in zip(done, sizes, strict=True)))
    log.cut(run.directory / QUANTILES, of_batch, sum(done))
    log.trim(run.directory / TIMES, of_batch)
    log.trim(run.directory / EVALUATIONS, of_member)
