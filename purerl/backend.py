"""The kind of device and the precision that a program is traced for, and how its scans over steps are computed."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from purerl import compat
from purerl.types import PyTree

MATRIX_PRECISION = {"auto": None, "float32": "float32", "tf32": "tensorfloat32", "bfloat16": None}
"""Precisions, and that of JAX's matrix products of float32 for each; None: the device's own."""
_ABSENT = contextvars.ContextVar("platform", default="")
_PRECISION = contextvars.ContextVar("precision", default="auto")
_QUICKLY = contextvars.ContextVar("quickly", default=False)
_SCAN: contextvars.ContextVar[Callable[..., Any] | None] = contextvars.ContextVar("scan", default=None)
_IN_KERNEL = contextvars.ContextVar("in_kernel", default=False)


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


@contextlib.contextmanager
def compiling(how: str) -> Iterator[None]:
    """Within it programs are compiled as `compiler_options` say: "quick", or "full", which is as XLA does."""
    token = _QUICKLY.set(how == "quick")
    try:
        yield
    finally:
        _QUICKLY.reset(token)


def compiler_options() -> dict[str, Any] | None:
    """What the programs of a command are compiled with: `purerl.quick_options` within a quick `compiling` for a CPU,
    otherwise None."""
    return compat.quick_options(jax.local_devices()[0]) if _QUICKLY.get() and is_cpu() else None


def tensor_cores() -> bool:
    """Whether tensor cores of a GPU may compute matrix products in the precision of `precise`."""
    return _PRECISION.get() != "float32"


def activations() -> jnp.dtype | None:
    """The type that dense layers compute in; None: that of their parameters and inputs."""
    return jnp.dtype(jnp.bfloat16) if _PRECISION.get() == "bfloat16" else None


def scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    xs: PyTree,
    name: str,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[PyTree, PyTree]:
    """A `jax.lax.scan` in a scope called ``name``, computed as `scanning` says, otherwise plainly. Leaves of ``xs`` are
    ``[length, ...]``."""

    def plain(step: Any, state: PyTree, xs: PyTree, length: int) -> tuple[PyTree, PyTree]:
        return jax.lax.scan(step, state, xs, length, reverse, unroll)

    length, other = len(jax.tree.leaves(xs)[0]), _SCAN.get()
    with jax.named_scope(name):
        return other(step, state, xs, length, name, plain, reverse) if other else plain(step, state, xs, length)


def in_kernel() -> bool:
    """Whether what is traced becomes a part of a kernel of ours, which holds no other kernels."""
    return _IN_KERNEL.get()


@contextlib.contextmanager
def tracing_kernel() -> Iterator[None]:
    """Within it `in_kernel` is True."""
    token = _IN_KERNEL.set(True)
    try:
        yield
    finally:
        _IN_KERNEL.reset(token)


@contextlib.contextmanager
def scanning(scan: Callable[..., Any] | None) -> Iterator[None]:
    """Within it the scans of formulas and networks are ``scan(step, state, xs, length, name, plain, reverse)``, where
    ``plain(step, state, xs, length)`` is what they are otherwise."""
    token = _SCAN.set(scan)
    try:
        yield
    finally:
        _SCAN.reset(token)
