"""How long programs took to compile the last time, from which the progress display estimates the wait."""

import contextlib
import json
from pathlib import Path
from typing import Any

import jax

from purerl import backend
from purerl.store import untrusted_json
from purerl.store.atomic import atomic

NAME = "seconds.json"
"""The name of the file, in the directory of compiled programs."""
MOST = 512
"""The largest number of programs that are remembered; the latest ones are kept."""


def last(digest: str) -> float | None:
    """Returns the seconds that the program of a description's ``digest`` took to compile last; None if unknown."""
    return untrusted_json.number(_known().get(_program(digest)))


def note(digest: str, seconds: float) -> None:
    """Remembers how long a program took to compile, in seconds, if compiled programs are kept."""
    folder = _folder()
    if folder and folder.is_dir():
        program = _program(digest)
        known = {name: taken for name, taken in _known().items() if name != program}
        latest = dict([*known.items(), (program, round(seconds, 1))][-MOST:])
        with contextlib.suppress(OSError), atomic(folder / NAME) as path:
            path.write_text(json.dumps(latest))


def _program(digest: str) -> str:
    """Returns what identifies a program: the digest of its description, and how it is compiled."""
    return f"{digest}-quick" if backend.compiler_options() else digest


def _folder() -> Path | None:
    directory = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # jax adds its options when imported
    return Path(directory) if directory else None


def _known() -> dict[str, Any]:
    folder = _folder()
    return untrusted_json.contents(folder, NAME) if folder else {}
