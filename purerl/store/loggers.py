"""Further destinations of metrics: a table, TensorBoard, Weights & Biases.

A logger that fails is reported once, and stops no training. A point is a few numbers by name, of all members together
(`metrics.means`), after a chunk of iterations or after an evaluation. These loggers are for watching; the whole record
is in ``metrics.jsonl``.
"""

import contextlib
import csv
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl.store.atomic import atomic

Point = Mapping[str, float]


class Logger(NamedTuple):
    """A destination of metrics: ``write(env_steps, point)`` records a point after that many frames of an agent."""

    write: Callable[[int, Point], None]
    close: Callable[[], None]


class Known(NamedTuple):
    """What the run had saved when this process began: frames of an agent, and seconds of training.

    Points that an earlier process wrote beyond these are computed again.
    """

    env_steps: int = 0
    seconds: float = 0.0


def table(directory: Path, about: dict[str, Any], known: Known) -> Logger:
    """Opens ``log.csv``: a line for each point, with the same columns in all; an evaluation fills its own columns.

    A number that a later point is the first to have becomes the last column, which is empty in the lines before.

    A file of an earlier process is cut to what is ``known``, and appended to. The table is in ``directory``; ``about``
    is not used.
    """
    path = directory / "log.csv"
    columns = _cut(path, known.seconds) if path.exists() else []
    file = open(path, "a", newline="")  # noqa: SIM115 - closed by `close`
    writer = csv.writer(file)

    def write(env_steps: int, point: Point) -> None:
        nonlocal file, writer
        if not columns:
            columns.extend(["env_steps", *point, "eval_return", "eval_length"])
            writer.writerow(columns)
        if new := [name for name in point if name not in columns]:
            columns.extend(new)
            file.close()
            _widen(path, columns)
            file = open(path, "a", newline="")  # noqa: SIM115 - closed by `close`
            writer = csv.writer(file)
        row = {"env_steps": env_steps, **point}
        writer.writerow([row.get(name, "") for name in columns])
        file.flush()

    return Logger(write, lambda: file.close())


def _widen(path: Path, columns: list[str]) -> None:
    """Writes a table anew with more ``columns``, which are empty in its lines."""
    with open(path, newline="") as old, atomic(path) as temporary, open(temporary, "w", newline="") as new:
        rows, writer = csv.reader(old), csv.writer(new)
        next(rows, None)
        writer.writerow(columns)
        writer.writerows([*row, *[""] * (len(columns) - len(row))] for row in rows)


def _cut(path: Path, seconds: float) -> list[str]:
    """Keeps the points of a table that came in the first ``seconds`` of training, and returns its columns.

    An evaluation came with the point before it. A line that a killed process left half written is removed.
    """
    with open(path, newline="") as old, atomic(path) as temporary, open(temporary, "w", newline="") as new:
        rows, writer, is_known = csv.reader(line for line in old if line.endswith("\n")), csv.writer(new), True
        if columns := next(rows, []):
            writer.writerow(columns)
        for row in rows:
            when = dict(zip(columns, row, strict=False)).get("seconds")
            is_known = float(when) <= seconds if when else is_known
            if is_known:
                writer.writerow(row)
    return columns


def tensorboard(directory: Path, about: dict[str, Any], known: Known) -> Logger:
    """Opens the folder ``tensorboard`` in ``directory`` by tensorboardX (``pip install 'purerl[tensorboard]'``).

    Points of an earlier process beyond the frames that are ``known`` are no longer shown. ``about`` is not used.
    """
    from tensorboardX import SummaryWriter

    path = directory / "tensorboard"
    writer = SummaryWriter(str(path), purge_step=known.env_steps + 1 if path.exists() else None)

    def write(env_steps: int, point: Point) -> None:
        for name, value in point.items():
            if value == value:
                writer.add_scalar(name, value, env_steps)

    return Logger(write, writer.close)


def wandb(directory: Path, about: dict[str, Any], known: Known) -> Logger:
    """Opens the folder ``wandb`` in ``directory`` (``pip install 'purerl[wandb]'``), with a run for each process.

    Nothing leaves the machine unless ``WANDB_MODE=online`` is in the environment, whose variables, such as
    ``WANDB_PROJECT``, ``WANDB_NAME`` and ``WANDB_DIR``, win. ``about`` is the run's config; ``known`` is not used.
    """
    import wandb

    settings = wandb.Settings(symlink=False, console="off", silent=True, x_disable_meta=True, x_disable_stats=True)
    ours = {"project": "purerl", "name": directory.name, "dir": str(directory), "mode": "offline"}
    free = {name: value for name, value in ours.items() if not os.environ.get(f"WANDB_{name.upper()}")}
    run = wandb.init(**free, config=about, settings=settings)
    for path in directory.joinpath("wandb").rglob("*"):
        if path.is_symlink():  # a run with a symbolic link cannot be resumed
            path.unlink()
    write = lambda env_steps, point: run.log({"env_steps": env_steps, **point})
    return Logger(write, run.finish)


MAKERS = {"csv": table, "tensorboard": tensorboard, "wandb": wandb}


@contextlib.contextmanager
def opened(
    names: Sequence[str], directory: Path, about: dict[str, Any], known: Known, warn: Callable[[str], None]
) -> Iterator[Logger]:
    """Yields all the named loggers as one, closed when the block ends.

    A logger that fails, or cannot be opened, is reported once and not used any more.

    Args:
        names: Names among `MAKERS`.
        directory: The directory of the run.
        about: The description of the run, as JSON.
        known: What an earlier process has saved.
        warn: Called with a line of text about a logger that fails.
    """
    working: dict[str, Logger] = {}

    def attempt(name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # other libraries can raise any error
            if failed := working.pop(name, None):
                with contextlib.suppress(Exception):
                    failed.close()
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            reason += f" (pip install 'purerl[{name}]')" if isinstance(error, ImportError) else ""
            warn(f"--log {name}: {type(error).__name__}: {reason}; the run goes on without it")

    for name in dict.fromkeys(names):
        made = attempt(name, functools.partial(MAKERS[name], directory, about, known))
        if made is not None:
            working[name] = made

    def write(env_steps: int, point: Point) -> None:
        for name, logger in list(working.items()):
            attempt(name, functools.partial(logger.write, env_steps, point))

    def close() -> None:
        for name, logger in list(working.items()):
            attempt(name, logger.close)

    try:
        yield Logger(write, close)
    finally:
        close()
