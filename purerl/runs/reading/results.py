"""Results of trainings: their metrics, and the returns of a population over frames."""

import functools
import math
from pathlib import Path

import numpy as np

from purerl.display.lines import Line, summarised
from purerl.display.words import shown
from purerl.errors import ConfigError
from purerl.loops.seat_metrics import FEW
from purerl.runs.describing import config_file
from purerl.runs.describing.run_directory import METRICS, QUANTILES
from purerl.runs.reading import run_curves
from purerl.store import guards, log
from purerl.store.guards import plotted
from purerl.store.metrics import IQM
from purerl.store.metrics import QUANTILES as LEVELS

NAME = "curve.png"


def draw(directory: Path) -> None:
    """Draws the returns of a training over frames, as quantiles over its agents, into ``curve.png``.

    Of a zero-sum game, whose returns are 0, it draws the shares of games that each seat won; of a training from
    recorded play the returns in its evaluations. It writes nothing if there is no log.
    """
    from purerl.display import curves, plots

    x, middle, quantiles = population(directory)
    if not len(x):
        return
    if run_curves.unit([directory]) == "updates":
        _draw_evaluations(directory)
        return
    file = config_file.read(directory / config_file.NAME)
    title = f"{file.fields.get('algo')} on {file.fields.get('env')}"
    summary = guards.contents(directory, "summary.json")
    if shares := _shares_of_games(directory) if "seat_won_per_seed" in summary else []:
        figure = curves.learning_figure(summarised(shares), ("frames", "share of games"), title)
    else:
        of_agents = guards.listed(summary, "stopped_at_per_seed")
        stopped = [at for at in map(guards.number, of_agents) if at is not None]
        figure = curves.population_figure(x, middle, quantiles, ("frames", "return"), title, stopped)
    plots.save(directory / NAME, figure)


def _draw_evaluations(directory: Path) -> None:
    """Draws the returns in evaluations over updates, if there are any, of a training in which no episode is played."""
    from purerl.display import curves, plots

    read, name = functools.cache(run_curves.columns), "eval_return"
    if name not in run_curves.metrics(directory, read):
        return
    fields = config_file.read(directory / config_file.NAME).fields
    title, axes = f"{fields.get('algo')} on {fields.get('env')}", ("updates", shown(name))
    drawn = run_curves.lines([directory], name, read=read)
    plots.save(directory / NAME, curves.learning_figure(summarised(drawn), axes, title))


def _shares_of_games(directory: Path) -> list[Line]:
    """Reads the shares of games that each seat won and that were drawn, one line each."""
    read = functools.cache(run_curves.columns)
    names = [f"won/{seat}" for seat in range(FEW)] + ["drawn"]
    known = [name for name in names if name in run_curves.metrics(directory, read)]
    return [run_curves.lines([directory], name, read=read)[0]._replace(name=shown(name)) for name in known]


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
        frames.append(plotted(next((row[name] for name in run_curves.COUNTED if name in row), None)))
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
