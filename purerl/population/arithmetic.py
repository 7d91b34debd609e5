"""Counts the floating-point operations of a program from its jaxpr."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from purerl import jaxprs


def flops(function: Callable[..., Any], *args: Any) -> float:
    """Counts the floating-point operations of ``function(*args)``, which is traced but not run.

    Matrix products and convolutions count two for each multiply-add, other operations one for each element of their
    result, data movement (`MOVEMENT`) nothing. A scan counts every iteration; a while loop, whose number of iterations
    is unknown, counts one; a cond counts its most expensive branch.
    """
    return _flops(jax.make_jaxpr(function)(*args).jaxpr, _all)


def product_flops(function: Callable[..., Any], *args: Any) -> float:
    """Counts those of `flops` that tensor cores can compute.

    These are convolutions, and matrix products none of whose sides is shorter than `SHORTEST`.
    """
    return _flops(jax.make_jaxpr(function)(*args).jaxpr, _product)


SHORTEST = 16
"""The rows, columns and summands of a matrix product that tensor cores compute at once."""
PRODUCTS = "dot_general", "conv_general_dilated"
"""Primitives that multiply and add."""
MOVEMENT = frozenset(
    [
        "reshape",
        "broadcast_in_dim",
        "transpose",
        "squeeze",
        "slice",
        "dynamic_slice",
        "dynamic_update_slice",
        "concatenate",
        "gather",
        "scatter",
        "copy",
        "convert_element_type",
        "bitcast_convert_type",
        "iota",
        "rev",
        "pad",
        "split",
        "expand_dims",
        "select_n",
    ]
)
"""Primitives that move data and compute nothing."""


def _flops(jaxpr: Any, count: Callable[[Any], float]) -> float:
    """Counts the operations of a jaxpr; ``count`` counts those of one equation."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [_flops(jaxpr, count) for jaxpr in jaxprs.inside(equation)]
        if not inner:
            total += count(equation)
        elif equation.primitive.name == "cond":
            total += max(inner)
        else:
            total += sum(inner) * equation.params.get("length", 1)
    return total


def _all(equation: Any) -> float:
    """Counts all operations of one equation."""
    if equation.primitive.name in PRODUCTS:
        return _of_product(equation)
    return 0.0 if equation.primitive.name in MOVEMENT else _size(equation)


def _product(equation: Any) -> float:
    """Counts the operations of one equation that tensor cores can compute."""
    if equation.primitive.name not in PRODUCTS:
        return 0.0
    if equation.primitive.name == "dot_general":
        over, batch = equation.params["dimension_numbers"]
        for side in (0, 1):
            shape = equation.invars[side].aval.shape
            free = [n for i, n in enumerate(shape) if i not in (*over[side], *batch[side])]
            if min(np.prod(free), np.prod([shape[i] for i in over[side]])) < SHORTEST:
                return 0.0
    return _of_product(equation)


def _size(equation: Any) -> float:
    return sum(float(np.prod(v.aval.shape)) for v in equation.outvars if hasattr(v.aval, "shape"))


def _of_product(equation: Any) -> float:
    """Counts two operations for each multiply-add of a product."""
    params = equation.params
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2 * _size(equation) * float(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted]))
    kernel = equation.invars[1].aval.shape
    return 2 * _size(equation) * float(np.prod(kernel)) / kernel[params["dimension_numbers"].rhs_spec[0]]
