"""What the logs of a run directory hold, as curves to draw. They are untrusted: only numbers are read."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from purerl.errors import ConfigError
from purerl.names import nearest
from purerl.runs.describing import config_file
from purerl.runs.describing.directory import EVALUATIONS, METRICS, QUANTILES, TIMES
from purerl.store import log, untrusted
from purerl.store.metrics import IQM
from purerl.store.metrics import QUANTILES as LEVELS
from purerl.store.untrusted import plotted

if TYPE_CHECKING:
    from purerl.display.curves import Line

NAME = "curve.png"
GENERATIONS = "generations.jsonl"
NO_METRICS = ("iteration", "env_steps", "seed", "config", "first_member", "generation", "frames")
"""Numbers of a log that no curve is of."""


def draw(directory: Path) -> None:
    """Writes ``curve.png`` into the directory of a training: the returns over frames, as quantiles over its agents.
    Nothing if it has no log."""
    from purerl.display import curves, plots

    x, middle, quantiles = population(directory)
    if len(x):
        file = config_file.read(directory / config_file.NAME)
        title = f"{file.fields.get('algo')} on {file.fields.get('env')}"
        of_agents = untrusted.listed(untrusted.contents(directory, "summary.json"), "stopped_at_per_seed")
        stopped = [at for at in map(untrusted.number, of_agents) if at is not None]
        figure = curves.population_figure(x, middle, quantiles, ("frames", "return"), title, stopped)
        plots.save(directory / NAME, figure)


def population(directory: Path) -> tuple[np.ndarray, np.ndarray, dict[float, np.ndarray]]:
    """The frames of an agent ``[points]``; the interquartile mean of the return over agents ``[points]``, nan in logs
    of earlier versions; and its quantiles ``[points]`` by their levels.

    Where agents were trained in batches these are means of the batches' own, each as often as it has agents that are
    alive.
    """
    frames, alive, returns = [], [], []
    names = [IQM, *(f"{q:g}" for q in LEVELS)]
    for row in log.rows(directory / QUANTILES, under_way=True):
        inner = row.get("episode_return")
        inner = inner if isinstance(inner, dict) else {}
        frames.append(plotted(row.get("env_steps")))
        alive.append(plotted(row.get("alive")))
        returns.append([plotted(inner.get(name)) for name in names])
    if not frames:
        return np.zeros(0), np.zeros(0), {q: np.zeros(0) for q in LEVELS}
    x, at = np.unique(np.array(frames), return_inverse=True)
    rows = np.array(returns)
    weight = np.where(np.isfinite(rows), np.maximum(np.nan_to_num(np.array(alive)), 0.0)[:, None], 0.0)
    total = [np.bincount(at, np.nan_to_num(rows[:, i]) * weight[:, i], len(x)) for i in range(len(names))]
    count = [np.bincount(at, weight[:, i], len(x)) for i in range(len(names))]
    middle, *quantiles = np.where(np.array(count) > 0, np.array(total) / np.maximum(count, 1), np.nan)
    return x, middle, dict(zip(LEVELS, quantiles, strict=True))


def file_of(directory: Path, metric: str) -> str:
    """The log of a run directory that holds a metric. Raises `ConfigError`, with the nearest names, if none does."""
    known: dict[str, str] = {}
    for name in (METRICS, EVALUATIONS, TIMES, GENERATIONS):
        first = next(log.rows(directory / name, under_way=True), {})
        known |= {key: name for key in first if key not in NO_METRICS and key not in known}
    if not known:
        raise ConfigError(f"{directory}: holds no log of a run")
    if metric not in known:
        raise ConfigError(f"y = {metric!r}: not in the logs of {directory}; nearest: {nearest(metric, list(known))}")
    return known[metric]


def lines(directory: Path, name: str, metric: str, axis: str) -> list["Line"]:
    """A metric of a run over frames or seconds, called ``name``, with a row for each member (or candidate). A sweep has
    a line for each configuration, with its values in the name.

    Raises `ConfigError` for a metric that the run has not, for the seconds of a run that did not record them, and for a
    sweep of more configurations than colours.
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
    found = []
    for which, members in groups.items():
        x = np.array(sorted({frames for values in members.values() for frames in values if math.isfinite(frames)}))
        values = np.array([[of_member.get(frames, math.nan) for frames in x] for of_member in members.values()])
        told = _configuration(directory, swept, which) if which and swept else name
        found.append(Line(told, seconds(directory, x) if axis == "seconds" else x, values))
    return found


def _configuration(directory: Path, swept: dict[str, list[float]], which: str) -> str:
    """The values of a sweep's configuration, whose number a log has as text. Raises `ConfigError` if there is none."""
    at, size = int(which) if which.isdecimal() and len(which) < 20 else -1, min(map(len, swept.values()))
    if not 0 <= at < size:
        raise ConfigError(f"{directory}: its log has a configuration {which[:40]!r}, which its sweep has not")
    return ", ".join(f"{key} {column[at]:.4g}" for key, column in swept.items())


def _swept(directory: Path) -> dict[str, list[float]]:
    """The values of each configuration of a sweep by name. Raises `ConfigError` for what is none."""
    swept = config_file.read(directory / config_file.NAME).take("swept", dict, {})
    columns = {name: [plotted(x) for x in column] for name, column in swept.items() if isinstance(column, list)}
    if len({len(column) for column in columns.values()}) > 1:
        raise ConfigError(f"{directory}: swept must hold lists of numbers, all of one length")
    return columns


def seconds(directory: Path, frames: np.ndarray) -> np.ndarray:
    """When the agents of a run's first batch had taken so many ``frames`` ``[n]`` each, in seconds of training.

    Raises `ConfigError` for a run without ``times.jsonl``.
    """
    rows = [row for row in log.rows(directory / TIMES, under_way=True) if row.get("first_member") == 0]
    if not rows:
        raise ConfigError(f"x = 'seconds': {directory} has no {TIMES}; earlier versions did not write it")
    at, when = np.array([[plotted(row.get(key)) for key in ("env_steps", "seconds")] for row in rows]).T
    order = np.argsort(at)
    return np.interp(frames, [0.0, *at[order]], [0.0, *when[order]])
