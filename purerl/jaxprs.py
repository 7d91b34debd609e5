"""Opening and walking what JAX traces: jaxprs, the programs inside of their operations, and computing an operation."""

from collections.abc import Mapping, Sequence
from typing import Any

from jax.extend.core import Jaxpr, JaxprEqn, Literal, jaxprs_in_params

CALLS = "jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call"
"""Operations that only compute the jaxpr inside of them."""


def opened(jaxpr: Any) -> tuple[Jaxpr, Sequence[Any]]:
    """Returns a jaxpr, closed or not, and its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def called(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[Any]] | None:
    """Returns what an operation of `CALLS` computes, as `opened` does; None: it is another operation."""
    if eqn.primitive.name not in CALLS:
        return None
    return next(opened(eqn.params[name]) for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in eqn.params)


def inside(eqn: JaxprEqn) -> list[Jaxpr]:
    """Lists the jaxprs inside of an operation, such as the branches of a choice."""
    return list(jaxprs_in_params(eqn.params))


def variables(atoms: Sequence[Any]) -> list[Any]:
    """Returns ``atoms`` without literals."""
    return [x for x in atoms if not isinstance(x, Literal)]


def look(known: Mapping[Any, Any], atoms: Sequence[Any]) -> list[Any]:
    """Returns the values of ``atoms``: those of literals, and of variables what is ``known`` of them."""
    return [x.val if isinstance(x, Literal) else known[x] for x in atoms]


def compute(eqn: JaxprEqn, given: Sequence[Any]) -> list[Any]:
    """Computes the results of an operation, or traces it."""
    results = eqn.primitive.bind(*given, **eqn.primitive.get_bind_params(eqn.params))
    return list(results) if eqn.primitive.multiple_results else [results]
