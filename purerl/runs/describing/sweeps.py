"""Sweeps: the names of what is swept, and the ranking of the configurations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.display import words
from purerl.display.progress import picturing
from purerl.display.tables import print_ranking
from purerl.formulas import aggregates
from purerl.runs.describing import config_file
from purerl.store import guards, policies, writing

NO_SUMMARY: Mapping[str, Any] = {}
"""What a run has whose training has not ended."""
ENV_PREFIX = "env."
"""The prefix of swept names that are parameters of the environment, not fields of the algorithm's config."""


def config_part(swept: dict[str, Any]) -> dict[str, Any]:
    """Returns the swept values that belong to the algorithm's config."""
    return {name: values for name, values in swept.items() if not name.startswith(ENV_PREFIX)}


def env_part(swept: dict[str, Any], index: int | None = None) -> dict[str, Any]:
    """Returns the swept values that belong to the environment, by names without the prefix.

    With ``index`` they are those of this configuration, otherwise the lists of all.
    """
    part = {name.removeprefix(ENV_PREFIX): v for name, v in swept.items() if name.startswith(ENV_PREFIX)}
    return part if index is None else {name: values[index] for name, values in part.items()}


def configurations(swept: Mapping[str, Sequence[Any]]) -> int:
    """Returns the number of configurations of a sweep; 1 if nothing is swept."""
    return len(next(iter(swept.values()), [0]))


MOST_PROGRAMS = 100
"""The largest number of programs of a sweep over settings that shape them."""


def as_text(value: Any) -> str:
    """Returns a value of a setting as a user writes it: ``64 64`` for a tuple, ``true`` and ``false``."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def columns(programs: dict[str, list[Any]], swept: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Returns all configurations of a sweep over settings that shape programs, program after program, by name.

    Numbers stay as they are, and other values become text. ``swept`` has what every program sweeps itself.
    """
    each = len(next(iter(swept.values()), [0]))
    count = len(next(iter(programs.values())))
    shown = lambda value: value if type(value) in (int, float) else as_text(value)
    columns_of_programs = {
        name: [shown(value) for value in column for _ in range(each)] for name, column in programs.items()
    }
    return columns_of_programs | {name: column * count for name, column in swept.items()}


def in_words(swept: Mapping[str, Sequence[Any]], index: int) -> str:
    """Returns the values of a configuration as text: ``learning_rate 0.001, num_envs 8``."""
    return ", ".join(f"{name} {words.value(column[index])}" for name, column in swept.items())


def saved_columns(fields: Mapping[str, Any], summary: Mapping[str, Any] = NO_SUMMARY) -> dict[str, list[Any]]:
    """Returns what the fields of a config file say of all configurations of a sweep, by name, as `columns` does.

    Numbers stay as they are, and other values become short texts. It is empty for a run that is no sweep. Columns of
    another length than the first one are left out. Values that a selection may change are those at its end, which are
    in the ``summary``.
    """
    tables = []
    swept = (summary if fields.get("select") and summary else fields).get("swept")
    for entry in (fields.get("programs"), swept):
        given = guards.mapping(entry).items()
        lists = {str(key)[:80]: list(map(plain, column)) for key, column in given if isinstance(column, list)}
        length = len(next(iter(lists.values()), []))
        tables.append({key: column for key, column in lists.items() if len(column) == length > 0})
    of_programs, of_each = tables
    return columns(of_programs, of_each) if of_programs else of_each


def plain(value: Any) -> Any:
    """Returns a value of a setting in a file: numbers as they are, anything else as a short text."""
    return value if guards.is_number(value) else as_text(guards.plain(value, depth=1))[:80]


def parts(directory: Path) -> list[Path]:
    """Returns the directories of the runs of a sweep over several programs; empty for any other run.

    Each of them is a folder of the sweep's directory; if one is a link, which may lead anywhere, there are none.
    """
    if (directory / policies.DESCRIPTION).exists():
        return []
    programs = guards.contents(directory, config_file.NAME).get("programs")
    first = next(iter(programs.values()), None) if isinstance(programs, dict) else None
    found = [directory / str(k) for k in range(min(len(first), MOST_PROGRAMS))] if isinstance(first, list) else []
    return [] if any(part.is_symlink() for part in found) else found


def named(directory: Path) -> str:
    """Returns the name of a run; for a program of a sweep with the name of the sweep before it."""
    directory = directory.resolve()
    sweep = directory.parent
    return f"{sweep.name}/{directory.name}" if directory in parts(sweep) else directory.name


def rank(
    swept: dict[str, list[Any]], scores: np.ndarray, programs: int = 0, frames: Sequence[int] | None = None
) -> dict[str, Any]:
    """Ranks the configurations of a sweep, the best first, by the interquartile mean of their seeds' scores.

    Of those that are alive, those that trained for more ``frames`` come first.

    Args:
        swept: By the name of the setting a value for each configuration.
        scores: An entry for each member, nan for those that diverged, which count as the worst.
        programs: The number of programs of a sweep over several. Each row then names its own, which is the folder of
            its run.
        frames: The frames that an agent of each configuration took, if a selection may have stopped some; None: all
            took the same.

    Returns:
        The settings ``swept`` and the rows ``ranked``.
    """
    count = len(next(iter(swept.values())))
    scores = scores.reshape(count, -1)
    rows = []
    for c in range(count):
        values = {name: values[c] for name, values in swept.items()}
        estimate = aggregates.reported_estimate(scores[c])
        place = {"config": c} | ({"program": c * programs // count} if programs else {})
        place |= {"env_steps": frames[c]} if frames else {}
        rows.append({**values, **place, **estimate._asdict(), "returns": scores[c].tolist()})
    alive = lambda row: bool(np.isfinite(row["returns"]).any())
    key = lambda row: (
        alive(row),
        row.get("env_steps", 0),
        row["value"],
        np.sum(np.nan_to_num(row["returns"], nan=-1e30)),
    )
    return {"swept": swept, "ranked": sorted(rows, key=key, reverse=True)}


def write_sweep(directory: Path, ranking: dict[str, Any]) -> None:
    """Writes ``sweep.json`` and ``sweep.png`` into a run directory, and prints the table."""
    writing.write_json(directory / "sweep.json", ranking)
    in_order = sorted(ranking["ranked"], key=lambda row: row["config"])
    with picturing(directory):
        from purerl.display import plots

        scores, frames = ([row.get(name, 0) for row in in_order] for name in ("returns", "env_steps"))
        plots.sweep_map(directory / "sweep.png", ranking["swept"], scores, frames=frames)
    print_ranking(ranking)
