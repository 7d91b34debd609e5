"""The kind of device that a program is traced for, where the fastest program depends on it."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

_ABSENT = contextvars.ContextVar("platform", default="")


def is_cpu() -> bool:
    """Whether programs are traced for a CPU: JAX's default device is one, and no other was named by `tracing_for`."""
    return (_ABSENT.get() or jax.default_backend()) == "cpu"


@contextlib.contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """Within it programs are traced for the devices of a platform of JAX, such as "gpu", wherever they run."""
    token = _ABSENT.set(platform)
    try:
        yield
    finally:
        _ABSENT.reset(token)
