"""The device, versions and flags of this process, and how long its programs took to compile."""

import contextlib
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import jax

from purerl import backend, processes
from purerl.hosts.processes import cores
from purerl.store import guards
from purerl.store.writing import atomic
from purerl.version import versions

PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "gymnax", "numpy")


VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "JAX_DEBUG_NANS",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_ENABLE_X64",
    "JAX_NUM_CPU_DEVICES",
    "JAX_PLATFORMS",
    "NPROC",
    "OMP_NUM_THREADS",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
"""The only environment variables that are ever recorded."""
PLAIN = re.compile("[A-Za-z0-9_.,:+-]*")
"""The pattern of values that are recorded. It matches no path with more than one part."""


def machine_facts() -> dict[str, Any]:
    """Returns the device, versions and flags, without which a measurement means nothing."""
    device = jax.devices()[0]
    return {
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": len(jax.devices()),
            "processes": processes.count(),
            "cores": cores(),
        },
        "versions": {
            "python": platform.python_version(),
            **versions(PACKAGES),
        },
        "flags": {name: without_paths(os.environ[name]) for name in VARIABLES if name in os.environ},
    }


def without_paths(value: str) -> str:
    """Replaces words of a variable's value that may be part of a path by ``...``; keeps flags, numbers and names."""
    words = []
    for word in value.split():
        flag, sign, end = word.partition("=") if re.match(r"--?\w+=", word) else ("", "", word)
        words.append(word if PLAIN.fullmatch(end) else f"{flag}{sign}...")
    return " ".join(words)


COMPILE_TIMES = "seconds.json"
"""The name of the file, in the directory of compiled programs."""
MOST = 512
"""The largest number of programs that are remembered; the latest ones are kept."""


def last_compile_time(digest: str) -> float | None:
    """Returns the seconds that the program of a description's ``digest`` took to compile last; None if unknown."""
    return guards.number(_known().get(_program(digest)))


def note_compile_time(digest: str, seconds: float) -> None:
    """Remembers how long a program took to compile, in seconds, if compiled programs are kept."""
    folder = _folder()
    if folder and folder.is_dir():
        program = _program(digest)
        known = {name: taken for name, taken in _known().items() if name != program}
        latest = dict([*known.items(), (program, round(seconds, 1))][-MOST:])
        with contextlib.suppress(OSError), atomic(folder / COMPILE_TIMES) as path:
            path.write_text(json.dumps(latest))


def _program(digest: str) -> str:
    """Returns what identifies a program: the digest of its description, and how it is compiled."""
    return f"{digest}-quick" if backend.compiler_options() else digest


def _folder() -> Path | None:
    directory = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # jax adds its options when imported
    return Path(directory) if directory else None


def _known() -> dict[str, Any]:
    folder = _folder()
    return guards.contents(folder, COMPILE_TIMES) if folder else {}
