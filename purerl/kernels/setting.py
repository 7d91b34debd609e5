"""Whether programs that are being traced get kernels of our own."""

import contextlib
import contextvars
from collections.abc import Iterator

OFF, ON, INTERPRETED = "off", "on", "interpreted"
"""None; compiled for a GPU; computed by JAX operation by operation, on any device, to compare them."""
AUTO = "auto"
"""What a person may want: kernels where the devices are GPUs. Without it there are none: no GPU has run them yet."""
_SETTING = contextvars.ContextVar("kernels", default=OFF)
_WANTED = contextvars.ContextVar("kernels_wanted", default=OFF)


def setting() -> str:
    """`OFF`, `ON` or `INTERPRETED`."""
    return _SETTING.get()


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
