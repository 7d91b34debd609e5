"""Results of runs: the curves of their logs, and how their final returns compare."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from purerl.errors import ConfigError
from purerl.names import nearest
from purerl.runs.describing import config_file
from purerl.runs.describing.run_directory import EVALUATIONS, METRICS, QUANTILES, TIMES
from purerl.store import guards, log
from purerl.store.guards import plotted
from purerl.store.metrics import IQM
from purerl.store.metrics import QUANTILES as LEVELS

if TYPE_CHECKING:
    from purerl.display.curves import Line

NAME = "curve.png"
GENERATIONS = "generations.jsonl"
NO_METRICS = ("iteration", "env_steps", "seed", "config", "first_member", "generation", "frames")
"""The numbers of a log that are not drawn as curves."""


def draw(directory: Path) -> None:
    """Draws the returns of a training over frames, as quantiles over its agents, into ``curve.png``.

    It writes nothing if there is no log.
    """
    from purerl.display import curves, plots

    x, middle, quantiles = population(directory)
    if len(x):
        file = config_file.read(directory / config_file.NAME)
        title = f"{file.fields.get('algo')} on {file.fields.get('env')}"
        of_agents = guards.listed(guards.contents(directory, "summary.json"), "stopped_at_per_seed")
        stopped = [at for at in map(guards.number, of_agents) if at is not None]
        figure = curves.population_figure(x, middle, quantiles, ("frames", "return"), title, stopped)
        plots.save(directory / NAME, figure)


def population(directory: Path) -> tuple[np.ndarray, np.ndarray, dict[float, np.ndarray]]:
    """Reads the returns of a population over frames.

    Where agents were trained in batches, the curves are means of the batches' curves, weighted by the number of agents
    that are alive.

    Returns:
        The frames of an agent ``[points]``; the interquartile mean of the return over agents ``[points]``; and the
        quantiles ``[points]`` of the return by their levels.
    """
    frames, alive, returns = [], [], []
    names = [IQM, *(f"{q:g}" for q in LEVELS)]
    for row in log.rows(directory / QUANTILES, under_way=True):
        inner = row.get("episode_return")
        frames.append(plotted(row.get("env_steps")))
        alive.append(plotted(row.get("alive")))
        returns.append([plotted(inner.get(name) if isinstance(inner, dict) else None) for name in names])
    if not frames:
        return np.zeros(0), np.zeros(0), {q: np.zeros(0) for q in LEVELS}
    x, at = np.unique(np.array(frames), return_inverse=True)
    rows = np.array(returns)
    weight = np.where(np.isfinite(rows), np.maximum(np.nan_to_num(np.array(alive)), 0.0)[:, None], 0.0)
    total = [np.bincount(at, np.nan_to_num(rows[:, i]) * weight[:, i], len(x)) for i in range(len(names))]
    count = [np.bincount(at, weight[:, i], len(x)) for i in range(len(names))]
    middle, *quantiles = np.where(np.array(count) > 0, np.array(total) / np.maximum(count, 1), np.nan)
    return x, middle, dict(zip(LEVELS, quantiles, strict=True))


def metrics(directory: Path, labels: list[dict[str, int]]) -> dict[str, np.ndarray]:
    """Reads the metrics of a training, as logged: by name, each ``[P, iterations]`` float64, nan where there is none.

    The log is untrusted: lines of no agent, or of no iteration that a log of its length can have, are left out.

    Args:
        directory: The run directory.
        labels: The label of each agent, ``[P]``.

    Raises:
        ConfigError: There is no log of a training, or it is too large.
    """
    path = directory / METRICS
    columns, names = log.Followed(path).read(), [*labels[0], "iteration"]
    if not columns.keys() >= {*names}:
        raise ConfigError(f"{path}: is no log of a training")
    of_labels = zip(*(columns[name] for name in names[:-1]), strict=True)
    agent_of = {tuple(label.values()): agent for agent, label in enumerate(labels)}
    agents, iterations = np.array([agent_of.get(row, -1) for row in of_labels]), columns["iteration"]
    known = (agents >= 0) & (iterations >= 1) & (iterations <= len(iterations))
    at = agents[known], iterations[known].astype(int) - 1
    shape = len(labels), at[1].max(initial=-1) + 1
    if math.prod(shape) * len(columns) > log.MOST_BYTES:  # a number of a whole log takes some bytes of it
        raise ConfigError(f"{path}: has iterations of agents that it cannot have")
    arrays = {name: np.full(shape, np.nan) for name in columns if name not in names}
    for name, values in arrays.items():
        values[at] = columns[name][known]
    return arrays


def file_of(directory: Path, metric: str) -> str:
    """Returns the name of the log of a run directory that holds a metric.

    Raises:
        ConfigError: No log holds it. The message names the nearest metrics.
    """
    known: dict[str, str] = {}
    for name in (METRICS, EVALUATIONS, TIMES, GENERATIONS):
        first = next(log.rows(directory / name, under_way=True), {})
        known |= {key: name for key in first if key not in NO_METRICS and key not in known}
    if not known:
        raise ConfigError(f"{directory}: has no log of a run")
    if metric not in known:
        raise ConfigError(f"y = {metric!r}: not in the logs of {directory}; nearest: {nearest(metric, list(known))}")
    return known[metric]


def lines(directory: Path, name: str, metric: str, axis: str) -> list["Line"]:
    """Reads a metric of a run over frames or seconds.

    Args:
        directory: The run directory.
        name: The name of the line. The lines of a sweep are named by the values of their configurations.
        metric: The name of the metric.
        axis: What it is drawn over: "seconds", or anything else for frames.

    Returns:
        A line with a row for each member (or candidate); of a sweep a line for each configuration.

    Raises:
        ConfigError: The run has no such metric; or it has not recorded its seconds; or it is a sweep of more
            configurations than there are colours.
    """
    from purerl.display.curves import Line
    from purerl.display.plots import COLOURS

    source = file_of(directory, metric)
    step = "frames" if source == GENERATIONS else "env_steps"
    groups: dict[str, dict[tuple[str, str], dict[float, float]]] = {}
    for row in log.rows(directory / source, under_way=True):
        group = groups.setdefault(str(row.get("config", "")), {})
        of_member = group.setdefault((str(row.get("seed")), str(row.get("first_member"))), {})
        of_member[plotted(row.get(step))] = plotted(row.get(metric))
    if len(groups) > len(COLOURS):
        raise ConfigError(f"{directory}: has {len(groups)} configurations, too many for curves; --kind map draws all")
    swept = _swept(directory)
    result = []
    for which, members in groups.items():
        x = np.array(sorted({frames for values in members.values() for frames in values if math.isfinite(frames)}))
        values = np.array([[of_member.get(frames, math.nan) for frames in x] for of_member in members.values()])
        label = _configuration(directory, swept, which) if which and swept else name
        result.append(Line(label, seconds(directory, x) if axis == "seconds" else x, values))
    return result


def _configuration(directory: Path, swept: dict[str, list[float]], which: str) -> str:
    """Formats the values of a sweep's configuration, whose number ``which`` the log holds as text.

    Raises:
        ConfigError: There is no such configuration.
    """
    at, size = int(which) if which.isdecimal() and len(which) < 20 else -1, min(map(len, swept.values()))
    if not 0 <= at < size:
        raise ConfigError(f"{directory}: its log has a configuration {which[:40]!r} that is not in its sweep")
    return ", ".join(f"{key} {column[at]:.4g}" for key, column in swept.items())


def _swept(directory: Path) -> dict[str, list[float]]:
    """Reads the values of each configuration of a sweep, by the names of the settings.

    Raises:
        ConfigError: The config file does not hold lists of numbers of one length.
    """
    swept = config_file.read(directory / config_file.NAME).take("swept", dict, {})
    columns = {name: [plotted(x) for x in column] for name, column in swept.items() if isinstance(column, list)}
    if len({len(column) for column in columns.values()}) > 1:
        raise ConfigError(f"{directory}: swept must hold lists of numbers, all of one length")
    return columns


def seconds(directory: Path, frames: np.ndarray) -> np.ndarray:
    """Returns when the agents of a run's first batch had taken numbers of frames ``[n]``, in seconds of training.

    Raises:
        ConfigError: The run has no ``times.jsonl``.
    """
    rows = [row for row in log.rows(directory / TIMES, under_way=True) if row.get("first_member") == 0]
    if not rows:
        raise ConfigError(f"x = 'seconds': {directory} has no {TIMES}")
    at, when = np.array([[plotted(row.get(key)) for key in ("env_steps", "seconds")] for row in rows]).T
    order = np.argsort(at)
    return np.interp(frames, [0.0, *at[order]], [0.0, *when[order]])
