"""What the dashboard shows: the list of runs, and the page of each."""

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purerl.display import words
from purerl.display.dashboard import curves
from purerl.display.dashboard.server import Answers, Missing
from purerl.display.words import shown
from purerl.errors import ConfigError
from purerl.runs.describing import config_file, run_directory, sweeps
from purerl.runs.reading.results import NO_METRICS
from purerl.store import guards, log
from purerl.store.guards import MOST_CHARACTERS, MOST_MEMBERS, plain, plotted

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
    def followed(path: Path) -> log.Followed:
        return log.Followed(path)

    def read(directory: Path, name: str) -> Mapping[str, np.ndarray]:
        return followed(directory / name).read() if guards.is_plain(directory / name) else {}

    def columns(directory: Path, name: str) -> Mapping[str, np.ndarray]:
        with contextlib.suppress(ConfigError):
            return read(directory, name)
        return {}

    def runs() -> dict[str, Any]:
        directories = sorted(_runs(root), key=_changed, reverse=True)
        rows = [_row(root, directory, columns) for directory in directories[:MOST_RUNS]]
        left_out = max(0, len(directories) - MOST_RUNS)
        return {"folder": str(folder), "runs": rows, "left_out": left_out, "now": time.time()}

    def run(path: str) -> dict[str, Any]:
        directory = _inside(root, path)
        return {"folder": str(folder), **_row(root, directory, columns), **details(directory, columns)}

    def curve(path: str, metric: str) -> dict[str, Any]:
        directory, problem = _inside(root, path), None
        for name, (x, labels) in LOGS.items():
            try:
                table = read(directory, name)
            except ConfigError as error:
                problem = error
                continue
            if metric in table and metric not in NO_CURVES:
                titles = {"title": shown(metric), "over": shown(x)}
                return {"metric": metric, **titles, **curves.curve(table, x, metric, labels)}
        raise problem or Missing(f"the run has no {metric[:80]}")

    def file(path: str, name: str) -> tuple[str, bytes]:
        directory = _inside(root, path)
        if name not in shown_in(directory):
            raise Missing
        return KINDS[Path(name).suffix], guards.read_bytes(directory / name, MOST_BYTES)

    return Answers(runs, run, curve, file)


def _runs(root: Path) -> Iterator[Path]:
    """Finds the run directories under a folder, those with a config file.

    Symbolic links are not followed. Names that are no text, which no address can hold, are left out.
    """
    for place, folders, files in os.walk(root):
        here = Path(place)
        if config_file.NAME in files and guards.is_plain(here / config_file.NAME):
            folders[:] = [part.name for part in sweeps.parts(here) if part.name in folders]
            yield here
        elif len(here.relative_to(root).parts) >= DEPTH:
            folders.clear()
        is_text = lambda name: name.encode(errors="ignore").decode() == name
        folders[:] = [name for name in folders if not name.startswith(".") and is_text(name)]


def _inside(root: Path, path: str) -> Path:
    """Returns the run directory that a request names.

    Raises:
        Missing: It is not a run directory under ``root``.
    """
    parts = path.split("/") if path else []
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Missing
    directory = root.joinpath(*parts)
    if Path(os.path.realpath(directory)) != directory or not guards.is_plain(directory / config_file.NAME):
        raise Missing
    return directory


def _name(directory: Path) -> str:
    """Returns the name of a run in the list; for a program of a sweep with the name of the sweep before it."""
    sweep = directory.parent
    return f"{sweep.name}/{directory.name}" if directory in sweeps.parts(sweep) else directory.name


def _changed(directory: Path) -> float:
    """Returns when a run wrote last, in seconds since 1970."""
    files = (directory / name for name in (*LOGS, config_file.NAME, "summary.json"))
    return max((path.lstat().st_mtime for path in files if guards.is_plain(path)), default=0.0)


def _row(root: Path, directory: Path, columns: Any) -> dict[str, Any]:
    """Returns the row of a run in the list."""
    row: dict[str, Any] = {"path": directory.relative_to(root).as_posix().removeprefix("."), "name": _name(directory)}
    row["changed"] = _changed(directory)
    try:
        file = config_file.read(directory / config_file.NAME)
    except ConfigError as error:
        return {**row, "kind": "damaged", "status": "damaged", "problem": str(error)[:MOST_CHARACTERS]}
    summary, fields = guards.contents(directory, "summary.json"), file.fields
    seeds, first = fields.get("seeds"), next(iter(_mapping(fields.get("swept")).values()), None)
    configurations = (len(first) if isinstance(first, list) else 1) * max(1, len(sweeps.parts(directory)))
    members = (len(seeds) if isinstance(seeds, list) else 1) * configurations
    members = max(1, guards.count(fields.get("population"))) if file.command == "evolve" else members
    kind = "population" if file.command == "train" and members > 1 else file.command
    done, total = _progress(directory, file, members, columns)
    status = _status(directory, summary)
    return {
        **row,
        "kind": kind,
        "algo": guards.text(fields.get("algo")),
        "env": guards.text(fields.get("env")) or ", ".join(map(guards.text, guards.listed(fields, "envs")[:20])),
        "socket": guards.text(fields.get("socket")),
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
        return guards.number(summary.get("fitness"))
    if command == "sweep":
        best = next(iter(guards.listed(guards.contents(directory, "sweep.json"), "ranked")), None)
        return guards.number(_mapping(best).get("value"))
    return guards.number(_mapping(summary.get("return_iqm")).get("value"))


def _status(directory: Path, summary: dict[str, Any]) -> str:
    """Returns ``running``, the status in the summary, or ``stopped``.

    A run has stopped if no process holds it and none has written a summary. If its summary is newer than its lock it
    has ended, although its process has not.
    """
    if run_directory.holder(directory) is not None:
        written, lock = directory / "summary.json", directory / run_directory.LOCK
        if not guards.is_plain(written) or written.lstat().st_mtime < lock.lstat().st_mtime:
            return "running"
    status = summary.get("status")
    return status if status in ("completed", "diverged", "interrupted") else "stopped"


def _progress(directory: Path, file: config_file.ConfigFile, members: int, columns: Any) -> tuple[int, int]:
    """Returns what all members have done and what they are to do: frames, or generations of a search."""
    if file.command == "evolve":
        done = columns(directory, "generations.jsonl").get("generation")
        return (guards.count(float(done[-1])) if done is not None else 0), guards.count(file.fields.get("generations"))
    total = guards.count(_mapping(file.fields.get("config")).get("total_steps")) * members
    if inner := sweeps.parts(directory):
        return sum(_progress(part, file, members // len(inner), columns)[0] for part in inner), total
    table = columns(directory, "quantiles.jsonl")
    if not {"first_member", "env_steps"} <= set(table):
        return 0, total
    rows = zip(table["first_member"], table["env_steps"], strict=True)
    batches = {int(first): steps for first, steps in rows if first >= 0 and steps >= 0}
    firsts = sorted(batches)
    usual = firsts[1] if len(firsts) > 1 else guards.count(file.options.get("agents_at_once")) or members
    done = sum(batches[first] * max(0, min(usual, members - first)) for first in firsts)
    return guards.count(float(done)), total


def _pace(directory: Path, summary: dict[str, Any], columns: Any) -> dict[str, float | None]:
    """Returns frames a second and seconds of all members, from the summary, or from the log while a run goes on."""
    times = columns(directory, "times.jsonl")
    last = {name: float(times[name][-1]) if name in times else None for name in ("frames_per_second", "seconds")}
    seconds = guards.number(summary.get("wall_seconds")) or guards.number(summary.get("seconds"))
    return {
        "speed": guards.number(summary.get("steps_per_second")) or last["frames_per_second"],
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


KINDS = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4", ".html": "text/html; charset=utf-8"}
"""The types of the pictures and films in a run directory that are shown, by the suffix of their names."""
LOGS = {
    "metrics.jsonl": ("env_steps", ("config", "seed")),
    "evaluations.jsonl": ("env_steps", ("config", "seed")),
    "quantiles.jsonl": ("env_steps", ("", "first_member")),
    "times.jsonl": ("env_steps", ("", "first_member")),
    "generations.jsonl": ("frames", ("", "")),
}
"""The logs that hold curves: the column that these are drawn over, and the columns that identify a member."""
REPORTS = "report.json", "closed-report.json", "network-report.json"
"""The files of reports on a search's function, on its closed form and on the network fitted to it."""
NO_CURVES = (*NO_METRICS, "seconds")
"""The numbers of a log that are no results."""


def details(directory: Path, columns: Any) -> dict[str, Any]:
    """Returns the contents of the page of a run, besides those of the list; empty without a readable config file.

    ``columns(directory, log)`` returns the columns of a log by name; empty if it cannot be read.
    """
    try:
        file = config_file.read(directory / config_file.NAME)
    except ConfigError:
        return {}
    summary, fields, shown = guards.contents(directory, "summary.json"), file.fields, shown_in(directory)
    names = [name for log in LOGS for name in columns(directory, log)]
    ranked = guards.listed(guards.contents(directory, "sweep.json"), "ranked")
    swept = {name: column for name, column in _mapping(fields.get("swept")).items() if isinstance(column, list)}
    settings = {name: fields[name] for name in fields if name not in ("config", "learned", "swept", "seeds")}
    over_configurations = ("return_mean", "return_iqm") if swept else ()
    hidden = (*fields, "card", *over_configurations)
    summed = {name: x for name, x in summary.items() if not isinstance(x, list) and name not in hidden}
    metrics = [name for name in dict.fromkeys(names) if name not in NO_CURVES]
    return {
        "metrics": metrics,
        "titles": {name: words.shown(name) for name in metrics},
        "config": plain(fields.get("config")),
        "settings": plain(settings),
        "options": plain(file.options),
        "history": plain(file.history),
        "swept": {str(name)[:80]: [guards.number(x) for x in column[:MOST_MEMBERS]] for name, column in swept.items()},
        "results": _members(fields, summary),
        "summary": plain(summed),
        "checkpoints": _checkpoints(directory),
        "reports": [row for name in REPORTS for row in _report(directory, name)],
        "sweep": [_place(row, swept) for row in ranked[:MOST_MEMBERS] if isinstance(row, dict)],
        "learned": _learned(directory, fields),
        "pictures": [name for name in shown if name.endswith(".png")],
        "films": [name for name in shown if not name.endswith(".png")],
    }


def _members(fields: dict[str, Any], summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each member with the results of its final evaluation."""
    seeds = [seed for seed in guards.listed(fields, "seeds") if type(seed) is int]
    names = {"return": "return_per_seed", "std": "return_std_per_seed", "length": "length_per_seed"}
    lists = {name: guards.listed(summary, of_file) for name, of_file in names.items()}
    alive, stopped = (guards.listed(summary, f"{name}_per_seed") for name in ("alive", "stopped_at"))
    lists |= {"stopped_at": stopped} if stopped else {}
    rows = []
    for i in range(min(len(alive), MOST_MEMBERS) if seeds else 0):
        numbers = {name: guards.number(column[i]) if i < len(column) else None for name, column in lists.items()}
        rows.append({"config": i // len(seeds), "seed": seeds[i % len(seeds)], "alive": alive[i] is True, **numbers})
    return rows


def _checkpoints(directory: Path) -> list[dict[str, Any]]:
    """Lists the checkpoints of a run: the batch of members, the number, bytes and time of each."""
    top, checkpoints = directory / "checkpoints", []
    for place, folders, files in os.walk(top):
        parts = Path(place).relative_to(top).parts
        folders[:] = [name for name in folders if name.isascii() and name.isdigit()] if len(parts) < 2 else []
        if "card.json" in files and parts:
            sizes = [path.lstat().st_size for name in files if guards.is_plain(path := Path(place) / name)]
            batch = int(parts[0][:9]) if len(parts) > 1 else None
            when = Path(place).lstat().st_mtime
            checkpoints.append({"batch": batch, "step": int(parts[-1][:18]), "bytes": sum(sizes), "changed": when})
    return sorted(checkpoints, key=lambda each: (each["batch"] or 0, each["step"]))


def _place(row: dict[str, Any], swept: dict[str, list[Any]]) -> dict[str, Any]:
    """Returns a row of a sweep's ranking: a configuration's number, values, estimate and return of each seed."""
    returns = [guards.number(x) for x in guards.listed(row, "returns")[:MOST_MEMBERS]]
    values = {str(name)[:80]: guards.number(row.get(name)) for name in swept}
    return {**values, "config": guards.count(row.get("config")), "returns": returns, **_estimate(row)}


def _report(directory: Path, name: str) -> list[dict[str, Any]]:
    """Reads a row for each environment and baseline from a report on a search."""
    of = name.removesuffix("report.json").rstrip("-") or "learned"
    words = lambda tuned: ", ".join(f"{str(key)[:40]} {plotted(value):.3g}" for key, value in tuned.items())
    rows = guards.listed(guards.contents(directory, name), "rows")[:MOST_MEMBERS]
    return [
        {
            "env": guards.text(row.get("env")),
            "held_out": row.get("trained_on") is False,
            "baseline": guards.text(row.get("baseline")),
            "tuned": words(_mapping(row.get("tuned"))),
            "of": of,
            "evolved": _estimate(row.get("fitness_iqm")),
            "compared": _estimate(row.get("baseline_iqm")),
            "difference": _estimate(row.get("iqm_difference")),
        }
        for row in rows
        if isinstance(row, dict)
    ]


def _estimate(value: Any) -> dict[str, float | None]:
    return {name: guards.number(_mapping(value).get(name)) for name in ("value", "low", "high")}


def _mapping(value: Any) -> dict[str, Any]:
    """Returns a mapping of a file; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _learned(directory: Path, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Describes the functions that a search found here, and those that a training uses."""
    documents = {name: guards.contents(directory, name) for name in ("artefact.json", "closed.json")}
    used = _mapping(fields.get("learned"))
    documents |= {str(name)[:80]: value for name, value in used.items() if isinstance(value, dict)}
    return [_function(name, document) for name, document in documents.items() if document]


def _function(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Describes a learned function for the page; closed forms in words."""
    from purerl.learned import artefacts, expressions

    try:
        artefact = artefacts.of_json(document)
    except ConfigError as error:
        return {"name": name, "problem": str(error)[:MOST_CHARACTERS]}
    words = None if artefact.expression is None else expressions.in_words(artefact.expression)[:MOST_CHARACTERS]
    card = {key: value for key, value in artefact.card.items() if not isinstance(value, dict | list)}
    return {"name": name, "socket": artefact.socket, "words": words, "card": plain(card)}


def shown_in(directory: Path) -> list[str]:
    """Returns the names of the pictures and films of a run."""
    names = sorted(path.name for path in directory.iterdir() if path.suffix in KINDS and guards.is_plain(path))
    return [name for name in names if re.fullmatch(r"[\w.-]{1,100}", name)]
