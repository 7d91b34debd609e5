"""The choice of kernels: what a user asks for, and what the devices can do."""

import contextlib
import contextvars
from collections.abc import Iterator

from purerl import backend
from purerl.kernels.scans import scan
from purerl.kernels.setting import OFF, ON, SETTING, setting

AUTO = "auto"
"""The wish for kernels where the devices are GPUs. The default is `OFF`: they slowed a large population."""
_REQUESTED = contextvars.ContextVar("kernels_requested", default=OFF)


@contextlib.contextmanager
def using(chosen: str) -> Iterator[None]:
    """Opens a context in which programs are traced with or without kernels.

    ``chosen`` is `OFF`, `ON` or `INTERPRETED`. It includes the scans of formulas and networks.
    """
    token = SETTING.set(chosen)
    try:
        with backend.scanning(None if chosen == OFF else scan):
            yield
    finally:
        SETTING.reset(token)


@contextlib.contextmanager
def requested(wish: str) -> Iterator[None]:
    """Opens a context in which `for_devices` turns kernels on where they are possible (`AUTO`), or nowhere (`OFF`)."""
    token = _REQUESTED.set(wish)
    try:
        yield
    finally:
        _REQUESTED.reset(token)


def for_devices(platform: str) -> contextlib.AbstractContextManager[None]:
    """Returns the context `using` that fits the devices of a ``platform`` of JAX: kernels are for GPUs alone.

    It leaves a choice of an outer `using` as it is.
    """
    return (
        using(ON) if platform == "gpu" and setting() == OFF and _REQUESTED.get() == AUTO else contextlib.nullcontext()
    )
