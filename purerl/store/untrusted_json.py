"""Values of untrusted JSON, converted to what they should be, and of bounded size."""

import math
from pathlib import Path
from typing import Any

from purerl.errors import ConfigError
from purerl.store import json_files, regular_files

LARGEST = 1e300
"""The largest number that is read for a table or a picture, so that sums of them are finite."""
MOST_MEMBERS = 1000
"""The most members of a run whose results are listed."""
MOST_CHARACTERS = 2000
"""The most characters of a text that are kept."""


def contents(directory: Path, name: str) -> dict[str, Any]:
    """Reads the object in a JSON file of a run; an empty one if the file is missing or damaged."""
    if not regular_files.is_plain(directory / name):
        return {}
    try:
        document = json_files.read_json(directory / name)
    except ConfigError:
        return {}
    return document if isinstance(document, dict) else {}


def listed(fields: dict[str, Any], name: str) -> list[Any]:
    """Returns the list in a file's ``fields`` under a name; an empty one for anything else."""
    value = fields.get(name)
    return value if isinstance(value, list) else []


def is_number(value: Any, largest: float = LARGEST) -> bool:
    """Returns whether a value is a number in [-``largest``, ``largest``]; true and false are none."""
    return type(value) in (int, float) and abs(value) <= largest


def number(value: Any) -> float | None:
    """Converts a value of a file to a number; None for anything else."""
    return float(value) if is_number(value) else None


def plotted(value: Any) -> float:
    """Converts a value of a file to a number, true and false to 1 and 0; nan for anything else."""
    return float(value) if type(value) is bool or is_number(value) else math.nan


def count(value: Any) -> int:
    """Converts a value of a file to a whole number; 0 for anything else."""
    return int(value) if is_number(value) and 0 <= value < 2**53 else 0


def text(value: Any) -> str:
    """Returns a text of a file, cut to 200 characters; an empty one for anything else."""
    return str(value)[:200] if isinstance(value, str) else ""


def plain(value: Any, depth: int = 4) -> Any:
    """Bounds the size of a value of JSON, for a table."""
    if isinstance(value, dict) and depth:
        return {str(key)[:80]: plain(item, depth - 1) for key, item in list(value.items())[:300]}
    if isinstance(value, list) and depth:
        return [plain(item, depth - 1) for item in value[:MOST_MEMBERS]]
    if isinstance(value, dict | list):
        return "..."
    return value[:MOST_CHARACTERS] if isinstance(value, str) else value
