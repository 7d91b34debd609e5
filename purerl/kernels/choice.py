"""Who gets kernels: what a person wants, and what the devices can."""

import contextlib
import contextvars
from collections.abc import Iterator

from purerl import backend
from purerl.kernels.scans import scan
from purerl.kernels.setting import OFF, ON, SETTING, setting

AUTO = "auto"
"""What a person may want: kernels where the devices are GPUs. Without it there are none: no GPU has run them yet."""
_WANTED = contextvars.ContextVar("kernels_wanted", default=OFF)


@contextlib.contextmanager
def using(chosen: str) -> Iterator[None]:
    """Within it programs are traced with kernels, those of the scans of formulas and networks included, or without."""
    token = SETTING.set(chosen)
    try:
        with backend.scanning(None if chosen == OFF else scan):
            yield
    finally:
        SETTING.reset(token)


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
