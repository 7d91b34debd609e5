"""The curves of runs, from their logs, for pictures and for the page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.display.lines import RUN, Line
from purerl.errors import ConfigError, printable
from purerl.names import nearest
from purerl.runs.describing import config_file, sweeps
from purerl.runs.describing.run_directory import EVALUATIONS, METRICS, QUANTILES, SELECTION, TIMES
from purerl.store import guards, log

GENERATIONS = "generations.jsonl"
COUNTED = "env_steps", "updates", "frames"
"""The columns that curves are drawn over: a log has one of them."""
LOGS = {
    METRICS: "seed",
    EVALUATIONS: "seed",
    QUANTILES: "first_member",
    TIMES: "first_member",
    SELECTION: "seed",
    GENERATIONS: "",
}
"""The logs that hold curves, and the column of each that tells members apart."""
NO_METRICS = (*COUNTED, "iteration", "seed", "config", "first_member", "generation", "agent", "parent")
"""The numbers of a log that are not drawn as curves."""
EVALUATED = "eval_"
"""What the names of metrics of evaluations during a training begin with."""
MOST_IN_TABLE = 1000
"""The most places in a table of a metric for each value of it in a log, which is untrusted."""
Read = Callable[[Path, str], Mapping[str, np.ndarray]]
"""A function that returns the columns of a log of a run directory by name, of one length; none without the log."""


def columns(directory: Path, name: str) -> Mapping[str, np.ndarray]:
    """Reads the columns of a log of any size, as a `Read` does.

    Raises:
        ConfigError: The log cannot be read.
    """
    path = directory / name
    return log.Followed(path, math.inf).read() if path.exists() else {}


def counted(table: Mapping[str, np.ndarray]) -> str:
    """Returns the name of the column of a log by which its lines are ordered; empty: there is none."""
    return next((name for name in COUNTED if name in table), "")


def unit(directories: Sequence[Path], read: Read = columns) -> str:
    """Returns what is counted of trainings: "updates" if no environment was stepped in any of them, else "frames"."""
    runs = [run for directory in directories for run in sweeps.parts(directory) or [directory]]
    axes = {counted(read(run, QUANTILES)) for run in runs} - {""}
    return "updates" if axes == {"updates"} else "frames"


def metrics(directory: Path, read: Read) -> list[str]:
    """Returns the names of the metrics in the logs of a run, or of those of all programs of a sweep."""
    runs = sweeps.parts(directory) or [directory]
    names = dict.fromkeys(key for name in LOGS for run in runs for key in read(run, name))
    return [name for name in names if name not in NO_METRICS]


def lines(directories: Sequence[Path], metric: str, axis: str = "frames", read: Read = columns) -> list[Line]:
    """Reads a metric of runs over frames (updates, where no environment was stepped) or seconds.

    Args:
        directories: The run directories. That of a sweep of several programs stands for the runs of all its programs.
        metric: The name of the metric.
        axis: What it is drawn over: "seconds", or anything else for frames.
        read: Reads the logs.

    Returns:
        A line for each configuration of each run, with a row for each of its members (or candidates); those of a sweep
        in the order of its ranking, once there is one. A line is named by what is swept, or else by its run, and has
        the settings of its training.

    Raises:
        ConfigError: A run has no such metric, or has not recorded its seconds.
    """
    names = _names(directories)
    result = []
    for directory, name in zip(directories, names, strict=True):
        known = metrics(directory, read)
        if not known:
            raise ConfigError(f"{directory}: has no log of a run")
        if metric not in known:
            raise ConfigError(
                f"y = {metric!r}: no number in the logs of {directory}; nearest: {nearest(metric, known)}"
            )
        for line in _of_run(directory, metric, axis, read):
            own = [name] if len(directories) > 1 or not line.name else []
            parts = own + (["sampled"] if metric.startswith(EVALUATED) and _is_sampled(directory) else [])
            settings = {**line.settings, RUN: name} if len(directories) > 1 else line.settings
            result.append(line._replace(name=": ".join([*parts, *filter(None, [line.name])]), settings=settings))
    return result


def _is_sampled(directory: Path) -> bool:
    """Returns whether actions were drawn from the policy's distribution in the evaluations of a run."""
    return guards.mapping(guards.contents(directory, config_file.NAME).get("options")).get("sample") is True


def _names(directories: Sequence[Path]) -> list[str]:
    """Returns the names of runs, or their paths if names are the same."""
    short = [sweeps.named(directory) for directory in directories]
    return [printable(x) for x in (short if len(set(short)) == len(short) else map(str, directories))]


def _of_run(directory: Path, metric: str, axis: str, read: Read) -> list[Line]:
    """Returns a line for each configuration of a run, named by what is swept; none if it has no such metric."""
    fields, parts = config_file.read(directory / config_file.NAME).fields, sweeps.parts(directory)
    swept = sweeps.saved_columns(fields, guards.contents(directory, "summary.json"))
    programs = list(guards.mapping(fields.get("programs")))
    each = len(next(iter(swept.values()), [0])) // max(1, len(parts))
    ranked = guards.listed(guards.contents(directory, "sweep.json"), "ranked")
    places = {guards.number(row.get("config")): i for i, row in enumerate(ranked) if isinstance(row, dict)}
    result = []
    for k, part in enumerate(parts or [directory]):
        common = _settings(part)
        for config, x, values in _members(part, metric, read):
            number = k * each + max(config, 0)
            known = programs if config < 0 and each > 1 else list(swept)  # or it is of all configurations of a program
            own = {name: swept[name] for name in known if number < len(swept.get(name, ()))}
            settings = {**common, **{name: column[number] for name, column in own.items()}}
            x = seconds(part, x, read) if axis == "seconds" else x
            result.append((places.get(number, len(places)), Line(sweeps.in_words(own, number), x, values, settings)))
    return [line for _, line in sorted(result, key=lambda pair: pair[0])]


def _members(directory: Path, metric: str, read: Read) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Reads a metric from the first log of a run that has it.

    Yields:
        The number of each configuration (-1: the log tells none apart), the frames ``[points]``, ascending, and the
        members' values ``[M, points]`` there.
    """
    for name, label in LOGS.items():
        table = read(directory, name)
        axis = counted(table)
        if metric not in table or not axis or metric in NO_METRICS:
            continue
        at, value = table[axis], table[metric]
        there = np.flatnonzero(np.isfinite(at))
        absent = np.full(len(at), -1.0)
        configs, members = (np.nan_to_num(table.get(key, absent), nan=-1.0) for key in ("config", label))
        there = there[np.argsort(configs[there], kind="stable")]
        found, first = np.unique(configs[there], return_index=True)
        for config, of in zip(found, np.split(there, first[1:]), strict=True):
            yield guards.count(float(config)) if config >= 0 else -1, *_pivot(members[of], at[of], value[of])
        return


def _pivot(members: np.ndarray, at: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places ``[points]`` of values ``[n]`` of members ``[n]``, and each member's values there (last).

    Raises:
        ConfigError: They are too few for their members and places.
    """
    (x, column), (names, row) = (np.unique(each, return_inverse=True) for each in (at, members))
    if len(names) * len(x) > MOST_IN_TABLE * len(at):
        raise ConfigError("a log has members at places that it cannot have")
    table = np.full((len(names), len(x)), np.nan)
    table[row, column] = values
    return x, table


def _settings(directory: Path) -> dict[str, Any]:
    """Returns the settings of a training, numbers and texts by name: the algorithm, the environment and others."""
    fields = guards.contents(directory, config_file.NAME)
    of = lambda name: guards.mapping(fields.get(name))
    params = {f"{sweeps.ENV_PREFIX}{name}": value for name, value in of("env_params").items()}
    given = {"algo": fields.get("algo"), "env": fields.get("env"), **params, **of("config"), **of("parts")}
    return {str(name)[:80]: sweeps.plain(value) for name, value in given.items()}


def seconds(directory: Path, frames: np.ndarray, read: Read = columns) -> np.ndarray:
    """Returns when the agents of a run's first batch had taken numbers of frames ``[n]``, in seconds of training.

    Raises:
        ConfigError: The run has no ``times.jsonl``.
    """
    table = read(directory, TIMES)
    axis = counted(table)
    if not axis or not {"first_member", "seconds"} <= set(table):
        raise ConfigError(f"x = 'seconds': {directory} has no {TIMES}")
    at, when = (table[name][table["first_member"] == 0] for name in (axis, "seconds"))
    order = np.argsort(at)
    return np.interp(frames, [0.0, *at[order]], [0.0, *when[order]])
