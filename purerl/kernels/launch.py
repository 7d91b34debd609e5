"""Launching a kernel by Pallas."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purerl import compat
from purerl.kernels import setting

NUMBERS_OF_A_WARP = 1024
"""The numbers of a kernel's largest array for which it gets one warp of 32 threads."""
WARPS = 4, 8
"""The fewest and the most warps of a kernel."""


def launch(
    kernel: Callable[..., None],
    name: str,
    inputs: list[Any],
    out: list[Any],
    aliases: dict[int, int],
    operations: list[Any],
) -> Any:
    """Calls a kernel with flattened inputs, and returns its flat results.

    The metadata of the kernel state how many bytes of its inputs it does not read.

    Args:
        kernel: The kernel, a function of references to inputs and results.
        name: The name of the kernel.
        inputs: The inputs, of any shapes.
        out: The shape and type of each result before it is flattened.
        aliases: The result that is written over each input: ``{input: result}``.
        operations: The operations that the kernel computes.
    """
    pl, plgpu = compat.pallas()
    largest = max((math.prod(var.aval.shape) for eqn in operations for var in eqn.outvars), default=1)
    warps = min(WARPS[1], max(WARPS[0], 1 << max(1, largest // NUMBERS_OF_A_WARP).bit_length() - 1))
    return pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct((max(1, math.prod(x.shape)),), x.dtype) for x in out],
        input_output_aliases=aliases,
        interpret=setting.setting() == setting.INTERPRETED,
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        name=name,
        metadata={compat.UNREAD: str(_unread(operations))},
    )(*(jnp.reshape(x, (-1,)) for x in inputs))


def _unread(operations: list[Any]) -> int:
    """Counts the bytes of inputs of which a kernel takes rows, less those of the rows."""
    total = 0
    for eqn in operations:
        if eqn.primitive.name == "gather":
            source, rows = eqn.invars[0].aval, eqn.outvars[0].aval
            total += max(0, math.prod(source.shape) - math.prod(rows.shape)) * source.dtype.itemsize
    return total
