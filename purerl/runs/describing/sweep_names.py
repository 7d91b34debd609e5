"""The names of a sweep: fields of the algorithm's config, and parameters of the environment."""

from typing import Any

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
