"""The contents of the page of a run, besides those that the list of runs shows."""

import os
import re
from pathlib import Path
from typing import Any

from purerl.display import words
from purerl.errors import ConfigError
from purerl.runs.describing import config_file
from purerl.runs.reading.curves import NO_METRICS
from purerl.store import regular_files, untrusted_json
from purerl.store.untrusted_json import MOST_CHARACTERS, MOST_MEMBERS, plain, plotted

KINDS = {
    ".png": "image/png",
    ".gif": "image/gif",
    ".mp4": "video/mp4",
    ".html": "text/html; charset=utf-8",
}
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

    Args:
        directory: The run directory.
        columns: ``columns(directory, log)`` returns the columns of a log by name; empty if it cannot be read.
    """
    try:
        file = config_file.read(directory / config_file.NAME)
    except ConfigError:
        return {}
    summary, fields, shown = untrusted_json.contents(directory, "summary.json"), file.fields, shown_in(directory)
    names = [name for log in LOGS for name in columns(directory, log)]
    ranked = untrusted_json.listed(untrusted_json.contents(directory, "sweep.json"), "ranked")
    swept = document if isinstance(document := fields.get("swept"), dict) else {}
    columns_of = {name: column for name, column in swept.items() if isinstance(column, list)}
    settings = {name: fields[name] for name in fields if name not in ("config", "learned", "swept", "seeds")}
    over_configurations = ("return_mean", "return_iqm") if columns_of else ()
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
        "swept": {
            str(name)[:80]: [untrusted_json.number(x) for x in column[:MOST_MEMBERS]]
            for name, column in columns_of.items()
        },
        "results": _members(fields, summary),
        "summary": plain(summed),
        "checkpoints": _checkpoints(directory),
        "reports": [row for name in REPORTS for row in _report(directory, name)],
        "sweep": [_place(row, columns_of) for row in ranked[:MOST_MEMBERS] if isinstance(row, dict)],
        "learned": _learned(directory, fields),
        "pictures": [name for name in shown if name.endswith(".png")],
        "films": [name for name in shown if not name.endswith(".png")],
    }


def _members(fields: dict[str, Any], summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each member with the results of its final evaluation."""
    seeds = [seed for seed in untrusted_json.listed(fields, "seeds") if type(seed) is int]
    names = {"return": "return_per_seed", "std": "return_std_per_seed", "length": "length_per_seed"}
    lists = {name: untrusted_json.listed(summary, of_file) for name, of_file in names.items()}
    alive, stopped = (untrusted_json.listed(summary, f"{name}_per_seed") for name in ("alive", "stopped_at"))
    lists |= {"stopped_at": stopped} if stopped else {}
    rows = []
    for i in range(min(len(alive), MOST_MEMBERS) if seeds else 0):
        numbers = {
            name: untrusted_json.number(column[i]) if i < len(column) else None for name, column in lists.items()
        }
        rows.append({"config": i // len(seeds), "seed": seeds[i % len(seeds)], "alive": alive[i] is True, **numbers})
    return rows


def _checkpoints(directory: Path) -> list[dict[str, Any]]:
    """Lists the checkpoints of a run: the batch of members, the number, bytes and time of each."""
    top, checkpoints = directory / "checkpoints", []
    for place, folders, files in os.walk(top):
        parts = Path(place).relative_to(top).parts
        folders[:] = [name for name in folders if name.isascii() and name.isdigit()] if len(parts) < 2 else []
        if "card.json" in files and parts:
            sizes = [path.lstat().st_size for name in files if regular_files.is_plain(path := Path(place) / name)]
            batch = int(parts[0][:9]) if len(parts) > 1 else None
            when = Path(place).lstat().st_mtime
            checkpoints.append({"batch": batch, "step": int(parts[-1][:18]), "bytes": sum(sizes), "changed": when})
    return sorted(checkpoints, key=lambda each: (each["batch"] or 0, each["step"]))


def _place(row: dict[str, Any], swept: dict[str, list[Any]]) -> dict[str, Any]:
    """Returns a row of a sweep's ranking: a configuration's number, values, estimate and return of each seed."""
    returns = [untrusted_json.number(x) for x in untrusted_json.listed(row, "returns")[:MOST_MEMBERS]]
    values = {str(name)[:80]: untrusted_json.number(row.get(name)) for name in swept}
    return {**values, "config": untrusted_json.count(row.get("config")), "returns": returns, **_estimate(row)}


def _report(directory: Path, name: str) -> list[dict[str, Any]]:
    """Reads a row for each environment and baseline from a report on a search."""
    rows = []
    for row in untrusted_json.listed(untrusted_json.contents(directory, name), "rows")[:MOST_MEMBERS]:
        if not isinstance(row, dict):
            continue
        tuned = given if isinstance(given := row.get("tuned"), dict) else {}
        estimates = {"evolved": "fitness_iqm", "compared": "baseline_iqm", "difference": "iqm_difference"}
        rows.append(
            {
                "env": untrusted_json.text(row.get("env")),
                "held_out": row.get("trained_on") is False,
                "baseline": untrusted_json.text(row.get("baseline")),
                "tuned": ", ".join(f"{str(key)[:40]} {plotted(value):.3g}" for key, value in tuned.items()),
                "of": name.removesuffix("report.json").rstrip("-") or "learned",
                **{key: _estimate(row.get(entry)) for key, entry in estimates.items()},
            }
        )
    return rows


def _estimate(value: Any) -> dict[str, float | None]:
    given = value if isinstance(value, dict) else {}
    return {name: untrusted_json.number(given.get(name)) for name in ("value", "low", "high")}


def _learned(directory: Path, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Describes the functions that a search found here, and those that a training uses."""
    documents = {name: untrusted_json.contents(directory, name) for name in ("artefact.json", "closed.json")}
    used = fields.get("learned")
    used = used if isinstance(used, dict) else {}
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
    names = sorted(path.name for path in directory.iterdir() if path.suffix in KINDS and regular_files.is_plain(path))
    return [name for name in names if re.fullmatch(r"[\w.-]{1,100}", name)]
