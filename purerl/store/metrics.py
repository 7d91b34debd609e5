"""Metrics as JSON lines, and as points of other loggers: a table, TensorBoard, Weights & Biases."""

import contextlib
import csv
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from purerl.formulas import aggregates
from purerl.store.writing import atomic, finite

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles over a population that `quantile_rows` writes."""
IQM = "iqm"
"""The name of the interquartile mean in these rows."""
TEXTS = {"b": "%s", "i": "%d", "u": "%d", "f": "%.9g"}
"""The format of a number, by the kind of its array. Nine digits are all that a float32 has."""
NULLS = ": nan", ": inf", ": -inf"
"""Numbers that JSON does not have, as they are formatted in a line."""
MOST_LINES = 4096
"""The approximate number of lines that are made at once."""
OF_EPISODES = "episode_return", "episode_length", "won", "drawn"
"""Metrics that are means over the episodes that ended, of all agents or, with ``/`` and its number, of one."""


def rows(
    metrics: dict[str, np.ndarray],
    env_steps: Sequence[int],
    first_iteration: int,
    labels: list[dict[str, int]],
    axis: str = "env_steps",
) -> Iterator[str]:
    """Yields metrics ``[iterations, P]`` as JSON lines, one for each iteration and member; many lines at once.

    Args:
        metrics: ``[iterations, P]`` by name.
        env_steps: ``[iterations]``, the environment steps of one member after each iteration, or what else is counted.
        first_iteration: The number of the first row, counted from 1.
        labels: ``[P]``, added to each member's lines.
        axis: The name of what is counted: ``env_steps``, or ``updates`` where no environment is stepped.
    """
    size, at_once = len(labels), max(1, MOST_LINES // len(labels))
    for start in range(0, len(env_steps), at_once):
        frames = np.array(env_steps[start : start + at_once], np.int64)
        over_members = lambda x: np.broadcast_to(x[:, None], (len(x), size))  # noqa: B023 - called at once
        iterations = first_iteration + start + np.arange(len(frames))
        columns = {"iteration": over_members(iterations)}
        columns |= {name: np.array([[label[name] for label in labels]] * len(frames)) for name in labels[0]}
        columns |= {axis: over_members(frames)}
        columns |= {name: values[start : start + at_once] for name, values in metrics.items()}
        yield _lines({name: values.reshape(-1) for name, values in columns.items()})


def quantile_rows(
    metrics: dict[str, np.ndarray],
    env_steps: Sequence[int],
    first_iteration: int,
    first_member: int,
    axis: str = "env_steps",
) -> Iterator[str]:
    """Yields metrics ``[iterations, P]`` summarised as JSON lines, one for each iteration.

    A line has the number of members alive, and the `QUANTILES` and the interquartile mean of ``episode_return`` over
    members in which an episode ended.

    Args:
        metrics: ``[iterations, P]`` by name.
        env_steps: As for `rows`.
        first_iteration: As for `rows`.
        first_member: The number that identifies the batch of members.
        axis: As for `rows`.
    """
    columns = {
        "iteration": first_iteration + np.arange(len(env_steps)),
        "first_member": np.full(len(env_steps), first_member),
        axis: np.array(env_steps, np.int64),
        "alive": metrics["alive"].sum(axis=1),
    }
    quantiles = aggregates.quantiles(metrics["episode_return"], QUANTILES)
    inner = {f"{q:g}": row for q, row in zip(QUANTILES, quantiles, strict=True)}
    yield _lines(columns, "episode_return", {**inner, IQM: aggregates.middles(metrics["episode_return"].T)})


def _lines(
    columns: dict[str, np.ndarray], name: str = "", inner: Mapping[str, np.ndarray] = MappingProxyType({})
) -> str:
    """Formats columns ``[N]`` as ``N`` JSON lines, in each of which the ``inner`` ones are an object called ``name``.

    One format serves all lines: it takes an eighth of the time of a `json.dumps` for each.
    """
    of = lambda columns: ", ".join(f"{_quoted(key)}: {TEXTS[x.dtype.kind]}" for key, x in columns.items())
    form = of(columns) + (f", {_quoted(name)}: {{{of(inner)}}}" if inner else "")
    every = [*columns.values(), *inner.values()]
    numbers: list = [None] * sum(len(values) for values in every)
    whole = True
    for i, values in enumerate(every):
        is_bool = values.dtype.kind == "b"
        numbers[i :: len(every)] = ["true" if x else "false" for x in values] if is_bool else values.tolist()
        whole = whole and (is_bool or bool(np.isfinite(values).all()))
    text = f"{{{form}}}\n" * len(every[0]) % tuple(numbers)
    for number in () if whole else NULLS:
        text = text.replace(number, ": null")
    return text


def line(row: dict) -> str:
    """Formats one JSON line."""
    return json.dumps(finite(row), allow_nan=False) + "\n"


def returns(metrics: dict[str, np.ndarray], name: str = "episode_return") -> np.ndarray:
    """Computes each member's mean return ``[P]`` over the episodes that ended in ``[iterations, P]``; nan if none.

    ``name`` is that of another metric which is a mean over these episodes.
    """
    return _over_episodes(metrics, name, axis=0)


def means(metrics: dict[str, np.ndarray]) -> dict[str, float]:
    """Reduces each of the metrics ``[iterations, P]`` to one number.

    It is the mean over iterations and members in which the metric exists, for means over episodes the mean over
    episodes, for ``episodes`` the sum, and for ``alive`` and ``stopped`` the number of members that are so at the end.

    With several members there are also the `QUANTILES` of ``episode_return`` over those in which an episode ended.
    """
    result = {}
    for name, values in metrics.items():
        if name.partition("/")[0] in OF_EPISODES:
            result[name] = float(_over_episodes(metrics, name))
        elif name in ("alive", "stopped"):
            known = np.isfinite(values)  # agents that a selection has stopped have no values from then on
            latest = np.maximum(len(values) - 1 - known[::-1].argmax(axis=0), 0)
            result[name] = float(np.nansum(values[latest, np.arange(values.shape[1])]))
        elif name == "episodes":
            result[name] = float(np.nansum(values))
        else:
            exists = np.isfinite(values)
            total = np.sum(values, dtype=np.float64, where=exists)
            result[name] = float(total / exists.sum()) if exists.any() else float("nan")
    if metrics["alive"].shape[1] > 1:
        for q, value in zip(QUANTILES, aggregates.quantiles(returns(metrics), QUANTILES), strict=True):
            result[f"episode_return_{q:g}"] = float(value)
    return result


def _quoted(name: str) -> str:
    """Quotes a name for a format of JSON."""
    return json.dumps(name).replace("%", "%%")


def _over_episodes(metrics: dict[str, np.ndarray], name: str, axis: int | None = None) -> np.ndarray:
    """Computes the mean of a metric over the episodes that ended; nan where none did."""
    ended = np.nan_to_num(metrics["episodes"].astype(np.float64))
    total, count = np.where(ended > 0, metrics[name] * ended, 0.0).sum(axis=axis), ended.sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


Point = Mapping[str, float]


class Logger(NamedTuple):
    """A destination of metrics: ``write(count, point)`` records a point after so many frames (updates) of an agent."""

    write: Callable[[int, Point], None]
    close: Callable[[], None]


class Known(NamedTuple):
    """What the run had saved when this process began: frames (or updates) of an agent, and seconds of training.

    ``axis`` is the name of what is counted.

    Points that an earlier process wrote beyond these are computed again.
    """

    counted: int = 0
    seconds: float = 0.0
    axis: str = "env_steps"


def table(directory: Path, about: dict[str, Any], known: Known) -> Logger:
    """Opens ``log.csv``: a line for each point, with the same columns in all; an evaluation fills its own columns.

    A number that a later point is the first to have becomes the last column, which is empty in the lines before.

    A file of an earlier process is cut to what is ``known``, and appended to. The table is in ``directory``; ``about``
    is not used.
    """
    path = directory / "log.csv"
    columns = _cut_table(path, known.seconds) if path.exists() else []
    file = open(path, "a", newline="")  # noqa: SIM115 - closed by `close`
    writer = csv.writer(file)

    def write(count: int, point: Point) -> None:
        nonlocal file, writer
        if not columns:
            columns.extend([known.axis, *point, "eval_return", "eval_length"])
            writer.writerow(columns)
        if new := [name for name in point if name not in columns]:
            columns.extend(new)
            file.close()
            _widen(path, columns)
            file = open(path, "a", newline="")  # noqa: SIM115 - closed by `close`
            writer = csv.writer(file)
        row = {known.axis: count, **point}
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


def _cut_table(path: Path, seconds: float) -> list[str]:
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
    writer = SummaryWriter(str(path), purge_step=known.counted + 1 if path.exists() else None)

    def write(count: int, point: Point) -> None:
        for name, value in point.items():
            if value == value:
                writer.add_scalar(name, value, count)

    return Logger(write, writer.close)


def wandb(directory: Path, about: dict[str, Any], known: Known) -> Logger:
    """Opens the folder ``wandb`` in ``directory`` (``pip install 'purerl[wandb]'``), with a run for each process.

    Nothing leaves the machine unless ``WANDB_MODE=online`` is in the environment, whose variables, such as
    ``WANDB_PROJECT``, ``WANDB_NAME`` and ``WANDB_DIR``, win. ``about`` is the run's config; ``known`` names the
    axis.
    """
    import wandb

    settings = wandb.Settings(symlink=False, console="off", silent=True, x_disable_meta=True, x_disable_stats=True)
    ours = {"project": "purerl", "name": directory.name, "dir": str(directory), "mode": "offline"}
    free = {name: value for name, value in ours.items() if not os.environ.get(f"WANDB_{name.upper()}")}
    run = wandb.init(**free, config=about, settings=settings)
    for path in directory.joinpath("wandb").rglob("*"):
        if path.is_symlink():  # a run with a symbolic link cannot be resumed
            path.unlink()
    write = lambda count, point: run.log({known.axis: count, **point})
    return Logger(write, run.finish)


MAKERS = {"csv": table, "tensorboard": tensorboard, "wandb": wandb}


@contextlib.contextmanager
def opened_loggers(
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

    def write(count: int, point: Point) -> None:
        for name, logger in list(working.items()):
            attempt(name, functools.partial(logger.write, count, point))

    def close() -> None:
        for name, logger in list(working.items()):
            attempt(name, logger.close)

    try:
        yield Logger(write, close)
    finally:
        close()
