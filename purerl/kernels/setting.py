"""Whether programs that are being traced get kernels of our own."""

import contextlib
import contextvars
from collections.abc import Iterator

from purerl import compat

OFF, ON, INTERPRETED, INSIDE = "off", "on", "interpreted", "inside"
"""None; compiled for a GPU; computed by JAX operation by operation, on any device, to compare them. `INSIDE`: what is
being traced becomes a part of a kernel, which holds no other kernels."""
AUTO = "auto"
"""What a person may want: kernels where the devices are GPUs. Without it there are none: no GPU has run them yet."""
_SETTING = contextvars.ContextVar("kernels", default=OFF)
_WANTED = contextvars.ContextVar("kernels_wanted", default=OFF)


def setting() -> str:
    """`OFF`, `ON`, `INTERPRETED` or `INSIDE`."""
    return _SETTING.get()


def active() -> bool:
    """Whether functions that are traced now become kernels."""
    return setting() in (ON, INTERPRETED) and compat.pallas() is not None


@contextlib.contextmanager
def using(chosen: str) -> Iterator[None]:
    """Within it programs are traced with kernels, or without."""
    token = _SETTING.set(chosen)
    try:
        yield
    finally:
        _SETTING.reset(token)


@contextlib.contextmanager
def wanted(wish: str) -> Iterator[None]:
    """Within it `for_devices` has kernels where they can be (`AUTO`), or nowhere (`OFF`)."""
    token = _WANTED.set(wish)
    try:
        yield
    finally:
        _WANTED.reset(token)


def for_devices(platform: str) -> contextlib.AbstractContextManager[None]:
    """`using` what is wanted and can be on devices of a platform of JAX: kernels are for GPUs alone.

    What `using` chose around it stays.
    """
    return using(ON) if platform == "gpu" and setting() == OFF and _WANTED.get() == AUTO else contextlib.nullcontext()
