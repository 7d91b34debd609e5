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

from purerl.display import lines, words
from purerl.display.dashboard import curves
from purerl.display.dashboard.server import Answers, Missing
from purerl.errors import ConfigError
from purerl.runs.describing import config_file, run_directory, select_options, sweeps
from purerl.runs.reading import filmed, run_curves, seats_shown
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

    def curve(paths: list[str], metric: str, setting: str = "") -> dict[str, Any]:
        directories = [_inside(root, path) for path in paths]
        if metric in NO_CURVES or not all(metric in run_curves.metrics(each, columns) for each in directories):
            for name in run_curves.LOGS:
                read(directories[0], name)  # which tells why it cannot be read
            raise Missing(f"the run has no {metric[:80]}")
        found = run_curves.lines(directories, metric, read=columns)
        titles = {"metric": metric, "title": words.shown(metric), "over": run_curves.unit(directories, columns)}
        return {**titles, **curves.curves(lines.readable(found, setting))}

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
            folders.clear()
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


def _changed(directory: Path) -> float:
    """Returns when a run wrote last, in seconds since 1970."""
    files = (directory / name for name in (*run_curves.LOGS, config_file.NAME, "summary.json"))
    return max((path.lstat().st_mtime for path in files if guards.is_plain(path)), default=0.0)


def _row(root: Path, directory: Path, columns: Any) -> dict[str, Any]:
    """Returns the row of a run in the list."""
    path = directory.relative_to(root).as_posix().removeprefix(".")
    row = {"path": path, "name": sweeps.named(directory), "changed": _changed(directory)}
    try:
        file = config_file.read(directory / config_file.NAME)
    except ConfigError as error:
        return {**row, "kind": "damaged", "status": "damaged", "problem": str(error)[:MOST_CHARACTERS]}
    summary, fields = guards.contents(directory, "summary.json"), file.fields
    seeds, swept = fields.get("seeds"), sweeps.saved_columns(fields)
    configurations = len(next(iter(swept.values()), [0]))
    members = (len(seeds) if isinstance(seeds, list) else 1) * configurations
    members = max(1, guards.count(fields.get("population"))) if file.command == "evolve" else members
    kind = "population" if file.command == "train" and members > 1 else file.command
    done, total = _progress(directory, file, members, columns)
    status = _status(directory, summary)
    return {
        **row,
        "kind": kind,
        "unit": run_curves.unit([directory], columns),
        "algo": guards.text(fields.get("algo")),
        "env": guards.text(fields.get("env")) or ", ".join(map(guards.text, guards.listed(fields, "envs")[:20])),
        "socket": guards.text(fields.get("socket")),
        "members": members,
        "configurations": configurations,
        "status": status,
        "done": done,
        "total": done if status == "completed" else total,  # whole iterations may be fewer frames than total_steps
        "return": _score(directory, file.command, summary),
        "sampled": summary.get("sampled") is True,
        "searched": words.simulations(summary),
        **_pace(directory, summary, columns, done if file.command == "evolve" else 0),
        **_spark(directory, file.command, columns),
        **_games(directory, file.command, summary, columns),
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
        return guards.number(guards.mapping(best).get("value"))
    return guards.number(guards.mapping(summary.get("return_iqm")).get("value"))


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
    each = guards.count(guards.mapping(file.fields.get("config")).get("total_steps"))
    total = each * members
    if inner := sweeps.parts(directory):
        return sum(_progress(part, file, members // len(inner), columns)[0] for part in inner), total
    table = columns(directory, "quantiles.jsonl")
    axis = run_curves.counted(table)
    if not axis or "first_member" not in table:
        return 0, total
    rows = zip(table["first_member"], table[axis], strict=True)
    batches = {int(first): steps for first, steps in rows if first >= 0 and steps >= 0}
    firsts = sorted(batches)
    usual = firsts[1] if len(firsts) > 1 else guards.count(file.options.get("agents_at_once")) or members
    done = sum(batches[first] * max(0, min(usual, members - first)) for first in firsts)
    if halving := _halving(file.fields, each):
        seeds = members // halving[0].configurations
        taken = lambda until: select_options.iterations(halving, int(until)) * seeds
        known = guards.count(guards.contents(directory, "summary.json").get("all_env_steps"))
        return known or taken(max(batches.values(), default=0.0)), taken(each)
    return guards.count(float(done)), total


def _halving(fields: dict[str, Any], total_steps: int) -> list[select_options.Interval]:
    """Returns the intervals of a sweep that halving shortens, in frames of an agent; empty for any other run."""
    select = guards.mapping(fields.get("select"))
    count = sweeps.configurations(sweeps.saved_columns(fields))
    if select.get("kind") != select_options.HALVING or select_options.problems(select) or count < 2:
        return []
    try:
        return select_options.intervals(select, count, 1, total_steps)
    except ConfigError:
        return []


def _pace(directory: Path, summary: dict[str, Any], columns: Any, generations: int) -> dict[str, float | None]:
    """Returns frames a second and seconds of all members, from the summary, or from the log while a run goes on.

    Of a search it returns generations a second.
    """
    logs = [columns(part, "times.jsonl") for part in sweeps.parts(directory) or [directory]]
    last = lambda name: [float(times[name][-1]) for times in logs if name in times]
    seconds = guards.number(summary.get("wall_seconds")) or guards.number(summary.get("seconds"))
    paces = "steps_per_second", "updates_per_second"
    frames = next((x for name in paces if (x := guards.number(summary.get(name)))), None)
    frames = frames or next(reversed(last("frames_per_second") + last("updates_per_second")), None)
    return {
        "speed": generations / seconds if generations and seconds else frames,
        "seconds": seconds or (sum(last("seconds")) or None),
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
    return {"spark": _thinned(kept), "latest": kept[-1] if kept else None}


def _thinned(values: list[float]) -> list[float]:
    """Returns at most `SPARK` means of neighbouring values."""
    step = max(1, -(-len(values) // SPARK))
    return [sum(part) / len(part) for i in range(0, len(values), step) if (part := values[i : i + step])]


def _games(directory: Path, command: str, summary: dict[str, Any], columns: Any) -> dict[str, Any]:
    """Returns what is known by seat, and of a zero-sum game a curve of what is won in place of that of the return."""
    result = seats_shown.of_run(directory, command, summary, columns)
    curve = result.pop("curve")
    return result | ({"spark": _thinned(curve)} if curve else {})


KINDS = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4", ".html": "text/html; charset=utf-8"}
"""The types of the pictures and films in a run directory that are shown, by the suffix of their names."""
REPORTS = "report.json", "closed-report.json", "network-report.json"
"""The files of reports on a search's function, on its closed form and on the network fitted to it."""
APART = "config", "learned", "swept", "seeds", "programs"
"""The fields of a config file that are shown elsewhere than among its settings."""
NO_CURVES = (*run_curves.NO_METRICS, "seconds")
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
    films = [name for name in shown if not name.endswith(".png")]
    ranked = guards.listed(guards.contents(directory, "sweep.json"), "ranked")
    swept = sweeps.saved_columns(fields, summary)
    settings = {name: value for name, value in fields.items() if name not in APART}
    over_configurations = ("return_mean", "return_iqm") if swept else ()
    hidden = (*fields, "card", *over_configurations)
    summed = {name: x for name, x in summary.items() if not isinstance(x, list) and name not in hidden}
    metrics = [name for name in run_curves.metrics(directory, columns) if name not in NO_CURVES]
    return {
        "metrics": metrics,
        "titles": {name: words.shown(name) for name in metrics},
        "config": plain(fields.get("config")),
        "settings": plain(settings),
        "options": plain(file.options),
        "history": plain(file.history),
        "swept": {name: _values(column) for name, column in swept.items()},
        "results": _members(fields, summary),
        "summary": plain(summed),
        "checkpoints": _checkpoints(directory),
        "reports": [row for name in REPORTS for row in _report(directory, name)],
        "sweep": [_place(row, swept) for row in ranked[:MOST_MEMBERS] if isinstance(row, dict)],
        "search": _search(fields) if file.command == "evolve" else [],
        "programs": [_program(part, k, fields) for k, part in enumerate(sweeps.parts(directory))],
        "learned": _learned(directory, fields),
        "pictures": [name for name in shown if name.endswith(".png")],
        "films": films,
        "filmed": filmed.read(directory, films),
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
        label = {"agent": i, "config": i // len(seeds), "seed": seeds[i % len(seeds)]}
        rows.append({**label, "alive": alive[i] is True, **numbers})
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


def _values(column: list[Any]) -> str:
    """Returns the values of a swept setting as text: all of them if they are few."""
    values = list(dict.fromkeys(map(words.value, column)))
    return ", ".join(values) if len(values) <= lines.MOST else f"{len(values)} values, {_ends(column)}"


def _ends(column: list[Any]) -> str:
    """Returns between which values a swept setting lies, as text."""
    ends = (min(column), max(column)) if all(map(guards.is_number, column)) else (column[0], column[-1])
    return " to ".join(map(words.value, ends))


def _place(row: dict[str, Any], swept: dict[str, list[Any]]) -> dict[str, Any]:
    """Returns a row of a sweep's ranking.

    It has a configuration's number, those of its agents as text, its program (None: there is one program), the values
    of what is swept as texts, an estimate, and the return of each seed.
    """
    returns = [guards.number(x) for x in guards.listed(row, "returns")[:MOST_MEMBERS]]
    config = guards.count(row.get("config"))
    program = guards.count(row["program"]) if "program" in row else None
    frames = guards.count(row.get("env_steps"))
    place = {"config": config, "program": program, "env_steps": frames, "agents": words.agents(config, len(returns))}
    values = [words.value(sweeps.plain(row.get(name))) for name in swept]
    return {**place, "values": values, "returns": returns, **_estimate(row)}


def _program(directory: Path, number: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns what is told of a program of a sweep of several: its number, settings, status and best return."""
    columns = sweeps.saved_columns({"programs": fields.get("programs")})
    summary = guards.contents(directory, "summary.json")
    score = _score(directory, "sweep" if guards.mapping(fields.get("swept")) else "train", summary)
    status = _status(directory, summary) if guards.is_plain(directory / config_file.NAME) else "waiting"
    return {"program": number, "settings": sweeps.in_words(columns, number), "status": status, "return": score}


def _search(fields: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns what a search is, as names and texts."""
    strategy, config, initial = (guards.mapping(fields.get(name)) for name in ("strategy", "config", "initial"))
    numbers = {str(name)[:80]: value for name, value in strategy.items() if guards.is_number(value)}
    count = lambda fields, name, what: f"{(n := guards.count(fields.get(name))):,} {what}{'s'[: n != 1]}"
    lifetimes = [words.value(x) for x in guards.listed(fields, "lifetimes")[: lines.MOST] if guards.is_number(x)]
    return [
        ("what evolves", guards.text(fields.get("socket"))),
        ("algorithm", guards.text(fields.get("algo"))),
        ("environments", ", ".join(map(guards.text, guards.listed(fields, "envs")[:20]))),
        ("a generation", f"{count(fields, 'population', 'candidate')}, each with {count(fields, 'num_seeds', 'seed')}"),
        (
            "a training",
            count(config, "total_steps", "frame")
            + (f", times {', '.join(lifetimes)}" if lifetimes not in ([], ["1"]) else ""),
        ),
        ("generations", str(guards.count(fields.get("generations")))),
        (
            "strategy",
            ", ".join([guards.text(strategy.get("name")), *(f"{k} {words.value(x)}" for k, x in numbers.items())]),
        ),
        (
            "begins at",
            f"a learned {guards.text(initial.get('socket')) or 'function'}" if initial else "the algorithm's own",
        ),
    ]


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
            "tuned": words(guards.mapping(row.get("tuned"))),
            "of": of,
            "evolved": _estimate(row.get("fitness_iqm")),
            "compared": _estimate(row.get("baseline_iqm")),
            "difference": _estimate(row.get("iqm_difference")),
        }
        for row in rows
        if isinstance(row, dict)
    ]


def _estimate(value: Any) -> dict[str, float | None]:
    return {name: guards.number(guards.mapping(value).get(name)) for name in ("value", "low", "high")}


def _learned(directory: Path, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Describes the functions that a search found here, and those that a training uses."""
    documents = {name: guards.contents(directory, name) for name in ("artefact.json", "closed.json")}
    used = guards.mapping(fields.get("learned"))
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
