"""The kind of device and the precision that programs are traced for, and how their compilation is set."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from purerl import compat

MATRIX_PRECISION = {"auto": None, "float32": "float32", "tf32": "tensorfloat32", "bfloat16": None}
"""The precisions by name, and for each that of JAX's matrix products of float32; None: the device's own."""
_ABSENT = contextvars.ContextVar("platform", default="")
_PRECISION = contextvars.ContextVar("precision", default="auto")
_QUICKLY = contextvars.ContextVar("quickly", default=False)


def is_cpu() -> bool:
    """Returns whether programs are traced for a CPU.

    They are if JAX's default device is one, and `tracing_for` named no other.
    """
    return (_ABSENT.get() or jax.default_backend()) == "cpu"


@contextlib.contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """Traces programs, within the context, for the devices of a platform of JAX, such as "gpu", wherever they run."""
    token = _ABSENT.set(platform)
    try:
        yield
    finally:
        _ABSENT.reset(token)


@contextlib.contextmanager
def precise(precision: str) -> Iterator[None]:
    """Traces programs, within the context, in one of the precisions of `MATRIX_PRECISION`.

    "auto" is what JAX does: on a GPU products of float32 are computed in tf32, which rounds their factors to 10 bits,
    and everywhere else in float32. With "bfloat16" the dense layers of torsos compute and keep their activations in
    bfloat16; parameters, optimisers, heads and losses stay in float32.
    """
    token, of_products = _PRECISION.set(precision), MATRIX_PRECISION[precision]
    try:
        with jax.default_matmul_precision(of_products) if of_products else contextlib.nullcontext():
            yield
    finally:
        _PRECISION.reset(token)


@contextlib.contextmanager
def compiling(how: str) -> Iterator[None]:
    """Sets the `compiler_options` within the context: "quick" for the quick ones, "full" for XLA's defaults."""
    token = _QUICKLY.set(how == "quick")
    try:
        yield
    finally:
        _QUICKLY.reset(token)


def compiler_options() -> dict[str, Any] | None:
    """Returns the compiler options for the programs of a command.

    They are `purerl.quick_options` within a quick `compiling` for a CPU, otherwise None.
    """
    return compat.quick_options(jax.local_devices()[0]) if _QUICKLY.get() and is_cpu() else None


def tensor_cores() -> bool:
    """Returns whether tensor cores of a GPU may compute matrix products in the precision of `precise`."""
    return _PRECISION.get() != "float32"


def activations() -> jnp.dtype | None:
    """Returns the type that dense layers compute in; None: the type of their parameters and inputs."""
    return jnp.dtype(jnp.bfloat16) if _PRECISION.get() == "bfloat16" else None
