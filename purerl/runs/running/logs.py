"""The logs that a training writes between its chunks: its own files, and the loggers that the options name."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from purerl import processes
from purerl.display.progress import say
from purerl.runs.describing.run_directory import EVALUATIONS, METRICS, QUANTILES, SELECTION, TIMES
from purerl.runs.running.run import Run
from purerl.runs.running.run_loop import Chunk
from purerl.store import metrics
from purerl.store.log import Log

ELSEWHERE = "log.csv", "tensorboard", "wandb"
"""The names of the files and folders that the loggers write."""


class Ran(NamedTuple):
    """The members that took frames in a chunk.

    - ``first``: the number of the first member of their batch.
    - ``which``: their numbers in the batch ``[n]``, or all.
    - ``labels``: their labels.
    - ``config``: their config, whose leaves are numpy arrays ``[n]``.
    """

    first: int
    which: np.ndarray | slice
    labels: list[dict[str, int]]
    config: Any

    def of(self, metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the metrics of the batch, ``[iterations, B]``, of these members alone."""
        return {name: values[:, self.which] for name, values in metrics.items()}


class Written(NamedTuple):
    """The open logs of a run.

    - ``files``: its own files, whose rows a checkpoint counts.
    - ``chunk(chunk, iteration, ran, seconds)``: writes a chunk that begins with iteration ``iteration`` and whose
      metrics are those of the members in ``ran``; ``seconds`` is the time of training in all.
    - ``selection(lines)``: writes lines about a selection (`selecting.Selected`).
    - ``evaluation(columns, iteration, ran)``: writes the numbers of an evaluation of the batch (`evaluation.columns`)
      after ``iteration``, of the members in ``ran``.
    """

    files: tuple[Log, ...]
    chunk: Callable[[Chunk, int, Ran, float], None]
    selection: Callable[[list[str]], None]
    evaluation: Callable[[dict[str, list[float]], int, Ran], None]


@contextlib.contextmanager
def opened(run: Run, known: metrics.Known) -> Iterator[Written]:
    """Opens the logs of a run to append to them, and closes them at the end of the context.

    ``known`` is what the run had saved when this process began. Of several processes the first one writes; those of the
    others do nothing.
    """
    if not processes.is_first():
        yield Written((), *[lambda *_: None] * 3)
        return
    directory, trainer, described = run.directory, run.setup.trainer, run.description
    axis = trainer.axis
    own = "optimiser" in described.learned or ":" in described.parts.get("optimiser", "")
    names = METRICS, QUANTILES, TIMES, *((EVALUATIONS,) if run.options.eval_every else ())
    names += (SELECTION,) if described.select else ()
    tell = functools.partial(say, run.console)
    with (
        contextlib.ExitStack() as stack,
        metrics.opened_loggers(run.options.log, directory, run.description.fields, known, tell) as elsewhere,
    ):
        files = {name: stack.enter_context(Log(directory / name)) for name in names}

        def chunk(chunk: Chunk, iteration: int, ran: Ran, seconds: float) -> None:
            size, numbers = len(ran.labels), range(iteration, chunk.done + 1)
            more = derived(ran.config, np.array(numbers), own_optimiser=own)
            values = {**chunk.metrics, **{k: np.broadcast_to(x, (len(numbers), size)) for k, x in more.items()}}
            steps = [trainer.counted(i) for i in numbers]
            files[METRICS].write(metrics.rows(values, steps, iteration, ran.labels, axis))
            files[QUANTILES].write(metrics.quantile_rows(values, steps, iteration, ran.first, axis))
            speed = len(numbers) * trainer.counts * size / chunk.seconds
            paced = {"seconds": seconds, f"{trainer.unit}_per_second": speed}
            about = {"iteration": chunk.done, "first_member": ran.first, axis: steps[-1]}
            files[TIMES].write([metrics.line({**about, **paced})])
            if run.options.log:
                elsewhere.write(steps[-1], {**metrics.means(values), **paced})

        def evaluation(columns: dict[str, list[float]], iteration: int, ran: Ran) -> None:
            columns = {name: np.asarray(column)[ran.which].tolist() for name, column in columns.items()}
            frames = trainer.counted(iteration)
            lines = []
            for label, *values in zip(ran.labels, *columns.values(), strict=True):
                about = {"iteration": iteration, **label, axis: frames}
                lines.append(metrics.line({**about, **dict(zip(columns, values, strict=True))}))
            files[EVALUATIONS].write(lines)
            elsewhere.write(frames, {name: float(np.mean(values)) for name, values in columns.items()})

        selection = lambda lines: files[SELECTION].write(lines)
        yield Written(tuple(files.values()), chunk, selection, evaluation)


def derived(config: Any, iterations: np.ndarray, *, own_optimiser: bool = False) -> dict[str, np.ndarray]:
    """Computes the metrics that follow from the config, after each of some iterations.

    - ``learning_rate``: Adam's step size; not with the user's own optimiser, nor where it follows what is measured.
    - ``replay_fill``: the fraction of the replay that holds data.
    - ``replay_age``: the mean age of the stored steps, in frames of an agent.
    - ``policy_lag``: by how many updates the parameters that acted are older than those that learn. On policy it is a
      mean over the data that is learned from, off policy over all data that is stored.

    ``iterations`` ``[n]`` are numbers of finished iterations, and ``own_optimiser`` says whether the user's own
    optimiser takes the place of Adam.

    Returns:
        The metrics that the config has, by name, each ``[n, P]`` float32, where its floats are ``[P]`` or scalars (1).
    """
    done = np.asarray(iterations, np.float64)[:, None]
    updates = config.total_updates / config.num_iterations if hasattr(config, "total_updates") else None
    derived = {}
    adapts = getattr(config, "adapt_learning_rate", 0)
    if hasattr(config, "learning_rate_decay") and not own_optimiser and not adapts:
        rate, decay = np.asarray(config.learning_rate, np.float64), np.asarray(config.learning_rate_decay, np.float64)
        derived["learning_rate"] = rate * (1 - decay * np.minimum(done / config.num_iterations, 1.0))
    if hasattr(config, "capacity_rows"):
        rows = np.minimum(config.warmup_rows + done * config.num_steps, config.capacity_rows)
        derived["replay_fill"] = rows / config.capacity_rows
        derived["replay_age"] = (rows - 1) / 2 * config.num_envs
        derived["policy_lag"] = (rows - 1) / 2 * updates / config.num_steps
    elif updates is not None:
        lag = np.asarray(getattr(config, "lag", 0.0), np.float64)
        derived["policy_lag"] = lag * updates + (updates - 1) / 2 + 0 * done
    return {name: np.atleast_2d(values).astype(np.float32) for name, values in derived.items()}
