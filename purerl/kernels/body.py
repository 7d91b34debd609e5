"""A function as a list of operations, and their computation inside a kernel."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from purerl import backend
from purerl.kernels import blocks, order, rules
from purerl.kernels.blocks import Block, Unsupported, View
from purerl.kernels.rules import Operation
from purerl.kernels.stages import Group
from purerl.types import PyTree

KEPT = 1024
"""Arrays of more numbers are read again by each operation that needs them, so that they hold no registers in between.
"""


class Body(NamedTuple):
    """A function as a kernel computes it: operations in their order, inputs and results.

    The inputs are constants, then arguments. A kernel computes only the results that are made by an operation.
    """

    jaxpr: Any
    order: list[Any]
    consts: list[Any]
    structure: Any
    closed: Any

    @property
    def computed(self) -> list[int]:
        """The indices of the results that operations make."""
        made = {var for eqn in self.order for var in eqn.outvars}
        return [i for i, var in enumerate(self.jaxpr.outvars) if not isinstance(var, core.Literal) and var in made]

    @property
    def read(self) -> list[int]:
        """The indices of the inputs that operations read."""
        used = order.last_reads(self.order)
        return [i for i, var in enumerate(self.jaxpr.invars) if var in used]


def body_of(function: Callable[..., PyTree], *args: PyTree) -> Body:
    """Traces a function of flat arguments into operations of a kernel.

    Raises:
        Unsupported: It is already certain that a kernel cannot compute the function.
    """
    with backend.tracing_kernel():
        traced = order.trace(function, *args)
    jaxpr = traced.inlined.jaxpr
    if jaxpr.effects or traced.inlined.consts:
        raise Unsupported("a function with effects")
    body = Body(jaxpr, order.needed(jaxpr), traced.consts, traced.structure, traced.closed)
    for i in body.read:
        if not jnp.issubdtype(body.jaxpr.invars[i].aval.dtype, np.generic):
            raise Unsupported("random keys")
    return body


def plain(body: Body, *inputs: Any) -> list[Any]:
    """Computes the results of a body without a kernel."""
    first = len(body.consts)
    results: list[Any] = core.jaxpr_as_fun(core.ClosedJaxpr(body.closed.jaxpr, [*inputs[:first]]))(*inputs[first:])
    return results


def differentiable(compute: Callable[..., PyTree], plain: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Gives ``compute`` the derivatives of ``plain``, which computes the same."""
    function = jax.custom_jvp(compute)
    function.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    return function


def alike(array: Any, aval: Any) -> bool:
    """Returns whether an array has the shape and type of ``aval``."""
    return array.shape == aval.shape and array.dtype == aval.dtype


Done = Callable[[int, Any, Block, Any], None]
"""A function that is called with each result: ``(group, variable, block, part)``."""


def run(groups: list[Group], values: dict[Any, Any], done: Done) -> None:
    """Computes groups of operations inside a kernel.

    Args:
        groups: The groups, in their order.
        values: The `View`s and `Block`s of inputs; results are added to it.
        done: Called as ``done(i, var, block, part)`` with each result of group ``i``. ``part`` is the part of the rows
            that a loop has reached, or None.
    """
    for i, group in enumerate(groups):
        results = _loop(i, group, values, done) if group.parts else _compute(group.operations, values)
        for var, block in results.items():
            values[var] = block
            done(i, var, block, None)


def _compute(operations: list[Operation], values: dict[Any, Any]) -> dict[Any, Block]:
    """Computes operations, and adds their results to ``values``."""
    computed: dict[Any, Block] = {}
    for eqn in operations:
        if eqn.primitive.name == "gather":
            results = [_rows(eqn, values)]
        else:
            results = rules.compute(eqn, [read(values, atom) for atom in eqn.invars])
        computed |= zip(eqn.outvars, results, strict=True)
        values |= computed
    return computed


def _loop(i: int, group: Group, values: dict[Any, Any], done: Done) -> dict[Any, Block]:
    """Computes the sums of a group of operations over all parts of the samples."""
    kind = {var: eqn.primitive.name for eqn in group.operations for var in eqn.outvars}
    shape = {var: eqn.shapes[i] for eqn in group.operations for i, var in enumerate(eqn.outvars)}

    def one_part(part: Any, pieces: list[Any]) -> list[Any]:
        inside, given = dict(values), iter(pieces)
        for var in group.inputs:
            view = values[var]
            size = view.shape[0] // group.parts
            start = part * np.int32(size * math.prod(view.shape[1:]))
            inside[var] = View((size, *view.shape[1:]), view.dtype, view.ref, start)
        computed = _compute(group.operations, inside)
        for var in group.rows:
            done(i, var, read(inside, var), part)
        added = []
        for var in group.sums:
            before = blocks.unflat(shape[var], var.aval.dtype, given)
            added += blocks.flat(rules.combined(kind[var], before, computed[var]))
        return added

    begin = [rules.neutral(kind[var], shape[var], var.aval.dtype) for var in group.sums]
    pieces = [piece for block in begin for piece in blocks.flat(block)]
    ended = iter(jax.lax.fori_loop(0, group.parts, one_part, pieces))
    return {var: blocks.unflat(shape[var], var.aval.dtype, ended) for var in group.sums}


def read(values: dict[Any, Any], atom: Any) -> Block:
    """Returns a variable or a literal as a block; a small array in memory is read only once."""
    if isinstance(atom, core.Literal):
        number = np.asarray(atom.val, dtype_of(atom))
        if number.shape:
            raise Unsupported("an array among the operations")
        return blocks.make((), number.dtype, lambda place: number[()])
    value = values[atom]
    if not isinstance(value, View):
        return value
    few = math.prod(value.shape) <= KEPT
    loaded = blocks.load(value, again=not few)
    if few:
        values[atom] = loaded
    return loaded


def dtype_of(atom: Any) -> Any:
    """Returns the type of a variable or of a literal."""
    return atom.aval.dtype


def _rows(eqn: Any, values: dict[Any, Any]) -> Block:
    """Reads rows of an array in memory: ``x[index]`` for a vector ``index``."""
    source, index = eqn.invars
    numbers, shape = eqn.params["dimension_numbers"], eqn.shapes[0]
    view = None if isinstance(source, core.Literal) else values[source]
    plain = (
        isinstance(view, View)
        and numbers.start_index_map == numbers.collapsed_slice_dims == (0,)
        and not numbers.operand_batching_dims
        and tuple(numbers.offset_dims) == tuple(range(1, len(shape)))
        and tuple(eqn.params["slice_sizes"]) == (1, *shape[1:])
    )
    if not plain or view is None:
        raise Unsupported("a gather other than of rows")
    rows = read(values, index)
    flat = Block(rows.shape[:1], rows.dtype, rows.pieces.reshape(-1))
    fill = eqn.params["fill_value"]
    clipped = eqn.params["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP
    if fill is None:
        fill = np.nan if jnp.issubdtype(view.dtype, jnp.inexact) else 0
    return blocks.take(view, flat, 0 if clipped else fill)
