"""Whether programs that are being traced get kernels of our own."""

import contextvars

from purerl import backend, compat

OFF, ON, INTERPRETED = "off", "on", "interpreted"
"""None; compiled for a GPU; computed by JAX operation by operation, on any device, to compare them."""
SETTING = contextvars.ContextVar("kernels", default=OFF)


def setting() -> str:
    """`OFF`, `ON` or `INTERPRETED`."""
    return SETTING.get()


def active() -> bool:
    """Whether functions that are traced now become kernels."""
    return setting() != OFF and not backend.in_kernel() and compat.pallas() is not None
