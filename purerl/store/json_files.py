"""JSON files: written atomically, and read as untrusted input."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.errors import ConfigError
from purerl.store import regular_files
from purerl.store.atomic import atomic

MOST_BYTES = 2**26
"""The size of the largest JSON file that is read, in bytes."""


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as JSON to ``path``, atomically. Non-finite numbers become null."""
    text = json.dumps(finite(value), indent=2, allow_nan=False) + "\n"
    with atomic(path) as temporary:
        temporary.write_text(text)


def canonical(value: Any) -> bytes:
    """Encodes JSON as bytes that follow from its contents alone, for digests."""
    return json.dumps(value, sort_keys=True).encode()


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """Reads a JSON file, which is untrusted.

    Raises:
        ConfigError: The file is not regular, larger than ``most_bytes``, or `parse` refuses it; one line that names the
            path.
    """
    raw = regular_files.read(path, most_bytes)
    try:
        return parse(raw)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(raw: bytes) -> Any:
    """Parses JSON in UTF-8. Raises `ConfigError` for anything else, duplicate names, nan, infinity and deep nesting."""
    try:
        return json.loads(
            raw.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_number, parse_float=_finite_number
        )
    except RecursionError:
        raise ConfigError("nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"not a JSON file ({error})") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return unique


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def finite(value: Any) -> Any:
    """Converts ``value`` for JSON: arrays to lists, numpy numbers to Python's, and every non-finite number to None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return finite(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
