"""The names of a sweep: fields of the algorithm's config, and parameters of the environment."""

from typing import Any

ENV_PREFIX = "env."
"""Of the swept names that are parameters of the environment, not of the algorithm's config."""


def config_part(swept: dict[str, Any]) -> dict[str, Any]:
    """Those of the swept values that belong to the algorithm's config."""
    return {name: values for name, values in swept.items() if not name.startswith(ENV_PREFIX)}


def env_part(swept: dict[str, Any], index: int | None = None) -> dict[str, Any]:
    """Those that belong to the environment, without their prefix; of all configurations or of one."""
    part = {name.removeprefix(ENV_PREFIX): v for name, v in swept.items() if name.startswith(ENV_PREFIX)}
    return part if index is None else {name: values[index] for name, values in part.items()}


MOST_PROGRAMS = 100
"""Most programs of a sweep over settings that shape them."""


def as_text(value: Any) -> str:
    """A value of a setting as a person writes it: ``64 64`` for a tuple, ``true`` and ``false``."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def columns(programs: dict[str, list[Any]], swept: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """All configurations of a sweep over settings that shape programs, program after program, by name: numbers as they
    are, other values as text. ``swept`` is what every program sweeps itself."""
    each = len(next(iter(swept.values()), [0]))
    count = len(next(iter(programs.values())))
    shown = lambda value: value if type(value) in (int, float) else as_text(value)
    found = {name: [shown(value) for value in column for _ in range(each)] for name, column in programs.items()}
    return found | {name: column * count for name, column in swept.items()}
