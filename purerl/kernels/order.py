"""A function as a list of operations without calls, in an order in which few results are held at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend import core

from purerl.types import PyTree

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat2": "jaxpr"}
CALLS |= {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "checkpoint": "jaxpr"}
"""Operations that call a function, and the parameter that holds the function."""


class Traced(NamedTuple):
    """A function of flat arguments.

    ``inlined`` has no calls, and takes ``consts`` before the arguments. ``closed`` is the function as JAX traced it.
    ``structure`` is that of the result.
    """

    inlined: core.ClosedJaxpr
    closed: core.ClosedJaxpr
    consts: list[Any]
    structure: Any


def trace(function: Callable[..., PyTree], *args: PyTree) -> Traced:
    """Traces a function of flat arguments into one list of operations."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    first = len(closed.consts)
    inlined = jax.make_jaxpr(lambda *flat: _inline(closed.jaxpr, flat[:first], flat[first:]))
    like = [jax.typeof(x) for x in closed.consts]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in (*like, *closed.in_avals)]
    return Traced(inlined(*shapes), closed, [*closed.consts], jax.tree.structure(shape))


def _inline(jaxpr: core.Jaxpr, consts: Any, args: Any) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= dict(zip(jaxpr.invars, args, strict=True))
    read = lambda atom: atom.val if isinstance(atom, core.Literal) else values[atom]
    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name in CALLS:
            inner = eqn.params[CALLS[eqn.primitive.name]]
            body, more = (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, [])
            out = _inline(body, more, given)
        else:
            out = eqn.primitive.bind(*given, **eqn.params)
            out = out if eqn.primitive.multiple_results else [out]
        values |= dict(zip(eqn.outvars, out, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def needed(jaxpr: core.Jaxpr) -> list[Any]:
    """Lists the operations that results depend on, each just before the first that needs it, result by result.

    So all that one result needs is done before the next result begins: of two networks with a loss each, the second one
    is computed after the gradients of the first.
    """
    source = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    done: set[int] = set()
    order: list[Any] = []
    for result in jaxpr.outvars:
        stack = [] if isinstance(result, core.Literal) else [(source.get(result), False)]
        while stack:
            eqn, ready = stack.pop()
            if eqn is None or id(eqn) in done:
                continue
            if ready:
                done.add(id(eqn))
                order.append(eqn)
                continue
            stack.append((eqn, True))
            inputs = [atom for atom in eqn.invars if not isinstance(atom, core.Literal)]
            stack += [(source.get(atom), False) for atom in reversed(inputs)]
    return order


def last_reads(order: list[Any]) -> dict[Any, int]:
    """Returns the index of the last operation that reads each variable."""
    return {atom: i for i, eqn in enumerate(order) for atom in eqn.invars if not isinstance(atom, core.Literal)}
