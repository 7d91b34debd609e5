"""The device, versions and flags of this process."""

import os
import platform
import re
from typing import Any

import jax

from purerl import processes
from purerl.hosts.processes import cores
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
