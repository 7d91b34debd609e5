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
