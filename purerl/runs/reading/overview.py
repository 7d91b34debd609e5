"""The runs in a folder as the dashboard shows them, as JSON. Their files are untrusted."""

import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purerl.display.dashboard import curves
from purerl.display.dashboard.server import Answers, Missing
from purerl.display.words import shown
from purerl.errors import ConfigError
from purerl.runs.describing import config_file
from purerl.runs.reading import run_page, sweeps
from purerl.store import growing_logs, lock, regular_files, untrusted_json

DEPTH = 4
"""The depth of folders within folders that are searched for runs."""
MOST_RUNS = 500
"""The largest number of runs that are listed: the newest ones."""
SPARK = 60
"""The largest number of points of a run's small curve in the list."""
LOGS_KEPT = 1024
"""The largest number of logs that are remembered, to read only what was added."""
MOST_BYTES = 2**27
"""The size of the largest picture or film that is shown, in bytes."""


def answers(folder: Path) -> Answers:
    """Makes the functions that answer the requests of the page, from the runs in ``folder`` alone.

    Raises:
        ConfigError: It is not a directory.
    """
    root = Path(os.path.realpath(folder))
    if not root.is_dir():
        raise ConfigError(f"folder = {str(folder)!r}: is not a directory")

    @functools.lru_cache(maxsize=LOGS_KEPT)
    def log(path: Path) -> growing_logs.Followed:
        return growing_logs.Followed(path)

    def read(directory: Path, name: str) -> Mapping[str, np.ndarray]:
        if not regular_files.is_plain(directory / name):
            return {}
        return log(directory / name).read()

    def columns(directory: Path, name: str) -> Mapping[str, np.ndarray]:
        with contextlib.suppress(ConfigError):
            return read(directory, name)
        return {}

    def runs() -> dict[str, Any]:
        directories = sorted(_runs(root), key=_changed, reverse=True)
        rows = [_row(root, directory, columns) for directory in directories[:MOST_RUNS]]
        return {
            "folder": str(folder),
            "runs": rows,
            "left_out": max(0, len(directories) - MOST_RUNS),
            "now": time.time(),
        }

    def run(path: str) -> dict[str, Any]:
        directory = _inside(root, path)
        return {"folder": str(folder), **_row(root, directory, columns), **run_page.details(directory, columns)}

    def curve(path: str, metric: str) -> dict[str, Any]:
        directory, problem = _inside(root, path), None
        for name, (x, labels) in run_page.LOGS.items():
            try:
                table = read(directory, name)
            except ConfigError as error:
                problem = error
                continue
            if metric in table and metric not in run_page.NO_CURVES:
                titles = {"title": shown(metric), "over": shown(x)}
                return {"metric": metric, **titles, **curves.curve(table, x, metric, labels)}
        raise problem or Missing(f"the run has no {metric[:80]}")

    def file(path: str, name: str) -> tuple[str, bytes]:
        directory = _inside(root, path)
        if name not in run_page.shown_in(directory):
            raise Missing
        return run_page.KINDS[Path(name).suffix], regular_files.read(directory / name, MOST_BYTES)

    return Answers(runs, run, curve, file)


def _runs(root: Path) -> Iterator[Path]:
    """Finds the run directories under a folder, those with a config file.

    Symbolic links are not followed. Names that are no text, which no address can hold, are left out.
    """
    for place, folders, files in os.walk(root):
        here = Path(place)
        if config_file.NAME in files and regular_files.is_plain(here / config_file.NAME):
            folders[:] = [part.name for part in sweeps.parts(here) if part.name in folders]
            yield here
        elif len(here.relative_to(root).parts) >= DEPTH:
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".") and _is_text(name)]


def _is_text(name: str) -> bool:
    return name.encode(errors="ignore").decode() == name


def _inside(root: Path, path: str) -> Path:
    """Returns the run directory that a request names.

    Raises:
        Missing: It is not a run directory under ``root``.
    """
    parts = path.split("/") if path else []
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Missing
    directory = root.joinpath(*parts)
    if Path(os.path.realpath(directory)) != directory or not regular_files.is_plain(directory / config_file.NAME):
        raise Missing
    return directory


def _name(directory: Path) -> str:
    """Returns the name of a run in the list; for a program of a sweep with the name of the sweep before it."""
    return (
        f"{directory.parent.name}/{directory.name}" if directory in sweeps.parts(directory.parent) else directory.name
    )


def _changed(directory: Path) -> float:
    """Returns when a run wrote last, in seconds since 1970."""
    times = [
        path.lstat().st_mtime
        for name in (*run_page.LOGS, config_file.NAME, "summary.json")
        if regular_files.is_plain(path := directory / name)
    ]
    return max(times, default=0.0)


def _row(root: Path, directory: Path, columns: Any) -> dict[str, Any]:
    """Returns the row of a run in the list."""
    row: dict[str, Any] = {"path": directory.relative_to(root).as_posix().removeprefix("."), "name": _name(directory)}
    row["changed"] = _changed(directory)
    try:
        file = config_file.read(directory / config_file.NAME)
    except ConfigError as error:
        return {
            **row,
            "kind": "damaged",
            "status": "damaged",
            "problem": str(error)[: untrusted_json.MOST_CHARACTERS],
        }
    summary, fields = untrusted_json.contents(directory, "summary.json"), file.fields
    seeds, swept = fields.get("seeds"), fields.get("swept")
    first = next(iter(swept.values()), None) if isinstance(swept, dict) else None
    configurations = (len(first) if isinstance(first, list) else 1) * max(1, len(sweeps.parts(directory)))
    members = (len(seeds) if isinstance(seeds, list) else 1) * configurations
    members = max(1, untrusted_json.count(fields.get("population"))) if file.command == "evolve" else members
    kind = "population" if file.command == "train" and members > 1 else file.command
    done, total = _progress(directory, file, members, columns)
    status = _status(directory, summary)
    return {
        **row,
        "kind": kind,
        "algo": untrusted_json.text(fields.get("algo")),
        "env": untrusted_json.text(fields.get("env"))
        or ", ".join(map(untrusted_json.text, untrusted_json.listed(fields, "envs")[:20])),
        "socket": untrusted_json.text(fields.get("socket")),
        "members": members,
        "configurations": configurations,
        "status": status,
        "done": done,
        "total": done if status == "completed" else total,  # whole iterations may be fewer frames than total_steps
        "return": _score(directory, file.command, summary),
        **_pace(directory, summary, columns),
        **_spark(directory, file.command, columns),
    }


def _score(directory: Path, command: str, summary: dict[str, Any]) -> float | None:
    """Returns the result of a run; None without one.

    It is the interquartile mean of its agents' returns, or of the returns of a sweep's best configuration, or the
    fitness of a search.
    """
    if command == "evolve":
        return untrusted_json.number(summary.get("fitness"))
    if command == "sweep":
        best = next(iter(untrusted_json.listed(untrusted_json.contents(directory, "sweep.json"), "ranked")), None)
        return untrusted_json.number(best.get("value")) if isinstance(best, dict) else None
    estimate = summary.get("return_iqm")
    return untrusted_json.number(estimate.get("value")) if isinstance(estimate, dict) else None


def _status(directory: Path, summary: dict[str, Any]) -> str:
    """Returns ``running``, the status in the summary, or ``stopped``.

    A run has stopped if no process holds it and none has written a summary.
    """
    if lock.holder(directory) is not None and not _is_newer(directory / "summary.json", directory / lock.LOCK):
        return "running"
    status = summary.get("status")
    if status in ("completed", "diverged", "interrupted", "stopped"):
        return status
    return "stopped"


def _is_newer(path: Path, than: Path) -> bool:
    """Returns whether a file was written after another.

    A run whose summary is newer than its lock has ended, although its process has not.
    """
    return regular_files.is_plain(path) and path.lstat().st_mtime >= than.lstat().st_mtime


def _progress(directory: Path, file: config_file.ConfigFile, members: int, columns: Any) -> tuple[int, int]:
    """Returns what all members have done and what they are to do: frames, or generations of a search."""
    if file.command == "evolve":
        done = columns(directory, "generations.jsonl").get("generation")
        return (untrusted_json.count(float(done[-1])) if done is not None else 0), untrusted_json.count(
            file.fields.get("generations")
        )
    config = file.fields.get("config")
    total = untrusted_json.count(config.get("total_steps") if isinstance(config, dict) else 0) * members
    if inner := sweeps.parts(directory):
        return sum(_progress(part, file, members // len(inner), columns)[0] for part in inner), total
    table = columns(directory, "quantiles.jsonl")
    if not {"first_member", "env_steps"} <= set(table):
        return 0, total
    rows = zip(table["first_member"], table["env_steps"], strict=True)
    batches = {int(first): steps for first, steps in rows if first >= 0 and steps >= 0}
    firsts = sorted(batches)
    usual = firsts[1] if len(firsts) > 1 else untrusted_json.count(file.options.get("agents_at_once")) or members
    done = sum(batches[first] * max(0, min(usual, members - first)) for first in firsts)
    return untrusted_json.count(float(done)), total


def _pace(directory: Path, summary: dict[str, Any], columns: Any) -> dict[str, float | None]:
    """Returns frames a second and seconds of all members, from the summary, or from the log while a run goes on."""
    times = columns(directory, "times.jsonl")
    last = {name: float(times[name][-1]) if name in times else None for name in ("frames_per_second", "seconds")}
    seconds = untrusted_json.number(summary.get("wall_seconds")) or untrusted_json.number(summary.get("seconds"))
    return {
        "speed": untrusted_json.number(summary.get("steps_per_second")) or last["frames_per_second"],
        "seconds": seconds or last["seconds"],
    }


def _spark(directory: Path, command: str, columns: Any) -> dict[str, Any]:
    """Returns the small curve of a run, over its agents, and its latest value.

    A sweep has none, because a curve over all its configurations together describes none of them.
    """
    log, name = ("generations", "fitness") if command == "evolve" else ("quantiles", "episode_return.iqm")
    table = columns(directory, f"{log}.jsonl")
    if name not in table or command == "sweep":
        return {"spark": [], "latest": None}
    kept = [float(value) for value in table[name] if value == value]
    step = max(1, -(-len(kept) // SPARK))
    means = [sum(part) / len(part) for i in range(0, len(kept), step) if (part := kept[i : i + step])]
    return {"spark": means, "latest": kept[-1] if kept else None}
