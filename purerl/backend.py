"""The kind of device and the precision that a program is traced for."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax
import jax.numpy as jnp

MATRIX_PRECISION = {"auto": None, "float32": "float32", "tf32": "tensorfloat32", "bfloat16": None}
"""Precisions, and that of JAX's matrix products of float32 for each; None: the device's own."""
_ABSENT = contextvars.ContextVar("platform", default="")
_PRECISION = contextvars.ContextVar("precision", default="auto")


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


@contextlib.contextmanager
def precise(precision: str) -> Iterator[None]:
    """Within it programs are traced in one of `MATRIX_PRECISION`.

    "auto" is what JAX does: on a GPU products of float32 are computed in tf32, which rounds their factors to 10 bits,
    everywhere else in float32. "bfloat16" has the dense layers of torsos compute and keep their activations in
    bfloat16; parameters, optimisers, heads and losses stay in float32.
    """
    token, of_products = _PRECISION.set(precision), MATRIX_PRECISION[precision]
    try:
        with jax.default_matmul_precision(of_products) if of_products else contextlib.nullcontext():
            yield
    finally:
        _PRECISION.reset(token)


def tensor_cores() -> bool:
    """Whether tensor cores of a GPU may compute matrix products in the precision of `precise`."""
    return _PRECISION.get() != "float32"


def activations() -> jnp.dtype | None:
    """The type that dense layers compute in; None: that of their parameters and inputs."""
    return jnp.dtype(jnp.bfloat16) if _PRECISION.get() == "bfloat16" else None
