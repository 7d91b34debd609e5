"""Counts the floating-point operations of a program from its jaxpr."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def flops(function: Callable[..., Any], *args: Any) -> float:
    """Floating-point operations of ``function(*args)``, which is traced but not run.

    Matrix products and convolutions count two for each multiply-add, other operations one for each element of their
    result, data movement (`MOVEMENT`) nothing. A scan counts every iteration; a while loop, whose number of iterations
    is unknown, counts one; a cond counts its most expensive branch.
    """
    return _flops(jax.make_jaxpr(function)(*args).jaxpr)


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


def _flops(jaxpr: Any) -> float:
    """The operations of a jaxpr."""
    return sum(_equation_flops(equation) for equation in jaxpr.eqns)


def _equation_flops(equation: Any) -> float:
    """The operations of one equation of a jaxpr."""
    name, params = equation.primitive.name, equation.params
    size = sum(float(np.prod(v.aval.shape)) for v in equation.outvars if hasattr(v.aval, "shape"))
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2 * size * float(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted]))
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        return 2 * size * float(np.prod(kernel)) / kernel[params["dimension_numbers"].rhs_spec[0]]
    inner = [_flops(getattr(j, "jaxpr", j)) for j in _inner(params)]
    if not inner:
        return 0.0 if name in MOVEMENT else size
    return max(inner) if name == "cond" else sum(inner) * params.get("length", 1)


def _inner(params: dict[str, Any]) -> list[Any]:
    """The jaxprs among an equation's parameters."""
    values = [v for value in params.values() for v in (value if isinstance(value, (tuple, list)) else (value,))]
    return [v for v in values if hasattr(v, "eqns") or hasattr(v, "jaxpr")]
