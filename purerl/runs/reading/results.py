"""Results of runs: the curves of their logs, and how their final returns compare."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.errors import ConfigError
from purerl.formulas import aggregates
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


COMPARED = {
    "algo": str,
    "env": str,
    "env_params": dict,
    "env_steps": int,
    "swept": dict,
    "return_per_seed": list,
    "alive_per_seed": list,
}
"""The entries that a comparison reads from a summary, and their types."""


def compare(directories: list[Path]) -> dict[str, Any]:
    """Compares runs by their interquartile means and the first one's probability of improvement over each.

    Of a run it reads ``summary.json`` alone. An agent that diverged counts as the worst. A directory may also be a line
    of a file of results: ``FILE.jsonl:ROW``, where ``ROW`` is the entry ``row`` of the line, as in
    ``docs/results.jsonl``.

    Returns:
        ``runs``: a row for each run, which can be written as JSON.

    Raises:
        ConfigError: A directory has no readable summary, or holds a sweep; or the environments differ.
    """
    rows, scores = [], []
    for directory in directories:
        summary = _summary(directory)
        if summary["swept"]:
            raise ConfigError(f"{directory}: is a sweep; compare needs runs of one configuration")
        returns = np.array([guards.plotted(x) for x in summary["return_per_seed"]])
        scores.append(np.where(summary["alive_per_seed"], returns, np.nan))
        facts = {name: summary[name] for name in ("algo", "env", "env_params", "env_steps")}
        rows.append({"run": str(directory), **facts, "agents": len(scores[-1])})
        for name in ("env", "env_params"):
            if rows[-1][name] != rows[0][name]:
                raise ConfigError(
                    f"{directory}: {name} = {rows[-1][name]!r} differs from {rows[0][name]!r} of {directories[0]}"
                )
    for row, score in zip(rows, scores, strict=True):
        better = aggregates.reported_estimate(scores[0], score, statistic=aggregates.probability_of_improvement)
        row |= {"return_mean": float(np.mean(score)), "return_iqm": aggregates.reported_estimate(score)._asdict()}
        row["return_per_seed"] = score.tolist()
        row |= {"improvement_of_first": better._asdict()}
    return {"runs": rows}


def _summary(source: Path) -> dict[str, Any]:
    """Reads the summary of a run or of a line of results. Both are untrusted.

    Raises:
        ConfigError: A comparison cannot use it. One line.
    """
    file, is_line, row = str(source).partition(".jsonl:")
    path = Path(f"{file}.jsonl") if is_line else source / "summary.json"
    summary = _line(path, row) if is_line else guards.read_json(path)
    if not isinstance(summary, dict):
        raise ConfigError(f"{path}: not the summary of a run")
    wrong = [name for name, kind in COMPARED.items() if type(summary.get(name)) is not kind]
    if wrong:
        raise ConfigError(f"{path}: lacks {', '.join(wrong)}, or has them of another type")
    returns, alive = summary["return_per_seed"], summary["alive_per_seed"]
    if len(returns) != len(alive) or not returns:
        raise ConfigError(f"{path}: has {len(returns)} returns of {len(alive)} agents")
    if not all(x is None or guards.is_number(x) for x in returns):
        raise ConfigError(f"{path}: return_per_seed must hold numbers")
    if not all(type(x) is bool for x in alive):
        raise ConfigError(f"{path}: alive_per_seed must hold true and false")
    if not 0 <= summary["env_steps"] < 2**63 or not re.fullmatch(r"[\w./:-]{1,200}", summary["algo"] + summary["env"]):
        raise ConfigError(f"{path}: not the summary of a run")
    return summary


def _line(path: Path, row: str) -> dict[str, Any]:
    """Reads the newest line of a row from a file of results, and names its entries as a summary does.

    Raises:
        ConfigError: The file is not valid, or has no such row.
    """
    raw = guards.read_bytes(path, guards.MOST_JSON_BYTES)
    try:
        lines = [guards.parse_json(line) for line in raw.splitlines()]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    rows = {str(line.get("row")): line for line in lines if isinstance(line, dict)}
    rows = {name: line for name, line in rows.items() if name.isprintable()}
    if row not in rows:
        raise ConfigError(f"{path}: has no row {row!r}; nearest: {nearest(row, rows)}")
    line = rows[row]
    returns = line.get("returns")
    alive = [x is not None for x in returns] if isinstance(returns, list) else None
    renamed: dict[str, Any] = {"env_steps": line.get("frames"), "return_per_seed": returns, "alive_per_seed": alive}
    return {"env_params": {}, "swept": {}, **line, **renamed}
