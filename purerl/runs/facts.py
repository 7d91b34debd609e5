"""Device, versions and flags of this process."""

import importlib.metadata
import os
import platform
from typing import Any

import jax

PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "gymnax", "numpy")


def machine_facts() -> dict[str, Any]:
    """Device, versions and flags: what a figure is worth nothing without."""
    device = jax.devices()[0]
    return {
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": len(jax.devices()),
            "cores": os.cpu_count(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "flags": {name: os.environ[name] for name in os.environ if name.startswith(("JAX_", "XLA_"))},
    }
