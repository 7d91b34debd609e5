"""The setting of kernels: whether programs that are being traced get them."""

import contextvars

from purerl import backend, compat

OFF, ON, INTERPRETED = "off", "on", "interpreted"
"""No kernels; kernels compiled for a GPU; kernels that JAX computes operation by operation, on any device, to compare.
"""
SETTING = contextvars.ContextVar("kernels", default=OFF)


def setting() -> str:
    """Returns `OFF`, `ON` or `INTERPRETED`."""
    return SETTING.get()


def active() -> bool:
    """Returns whether functions that are traced now become kernels."""
    return setting() != OFF and not backend.in_kernel() and compat.pallas() is not None
