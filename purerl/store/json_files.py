"""JSON files, written atomically."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.errors import ConfigError
from purerl.store.atomic import atomic


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as JSON to ``path``, atomically. Non-finite numbers become null."""
    text = json.dumps(finite(value), indent=2, allow_nan=False) + "\n"
    with atomic(path) as temporary:
        temporary.write_text(text)


def read_json(path: Path) -> Any:
    """The contents of a JSON file. Raises `ConfigError` if it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a JSON file ({error})") from None


def finite(value: Any) -> Any:
    """``value`` ready for JSON: arrays as lists, numpy numbers as Python's, and None for every non-finite number."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return finite(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(path: Path, most_bytes: int) -> str:
    return path.read_text()
