"""JSON files that are written whole or not at all."""

import json
import math
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.errors import ConfigError


def write_json(path: Path, value: Any) -> None:
    """Writes whole or not at all. Numbers that JSON lacks (nan, inf) become null."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(finite(value), indent=2, allow_nan=False) + "\n")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Raises `ConfigError` if the file is missing or is not JSON."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a JSON file ({error})") from None


def finite(value: Any) -> Any:
    """``value`` with Python numbers for numpy's, and None for every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return finite(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
