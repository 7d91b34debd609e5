"""Files and folders that are replaced atomically: they are there whole or not at all. JSON among them."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a path beside ``path`` to write to; its file replaces ``path`` when the block ends without an error.

    After an error that file is removed, and ``path`` stays as it was. A file that is made with `open` has the mode that
    the umask allows. A file or a symbolic link at either path is replaced; a link is not written through.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside ``path`` to write into; it replaces ``path`` when the block ends without an error.

    After an error it is removed, and ``path`` stays as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as JSON to ``path``, atomically. Non-finite numbers become null."""
    text = json.dumps(finite(value), indent=2, allow_nan=False) + "\n"
    with atomic(path) as temporary:
        temporary.write_text(text)


def canonical(value: Any) -> bytes:
    """Encodes JSON as bytes that follow from its contents alone, for digests."""
    return json.dumps(value, sort_keys=True).encode()


def finite(value: Any) -> Any:
    """Converts ``value`` for JSON: arrays to lists, numpy numbers to Python's, and every non-finite number to None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return finite(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
