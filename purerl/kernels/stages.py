"""Cutting a function of many samples into loops over a few of them, so that a kernel holds little at a time.

Which axes are of samples follows from where an axis comes from: the leading axis of one input is of samples, and each
operation determines which axes of its results are those of its operands. An operation without such an axis among its
results, but with one among its operands, is a sum over the samples. Sums that wait for no other sum share a loop, which
adds them up part by part; what is computed for a part is not kept.
"""

import math
from typing import Any, NamedTuple

from jax.extend import core

from purerl.kernels.blocks import Unsupported
from purerl.kernels.rules import ELEMENTWISE, UNCHANGED, Operation

ROWS = 16
"""The number of samples of a part."""
SUMS = frozenset(["reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "dot_general"])
"""Operations that may be sums over samples."""


class Group(NamedTuple):
    """Operations that a kernel runs one after another: once, or if ``parts`` is above 0 for each part of the samples.

    ``sums`` are the variables that a loop adds up, ``rows`` those whose parts it writes, and ``inputs`` those of which
    it reads parts.
    """

    operations: list[Operation]
    parts: int = 0
    sums: tuple[Any, ...] = ()
    rows: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()


def whole(order: list[Any]) -> list[Group]:
    """Returns groups that compute every operation once."""
    return [Group([Operation.of(eqn)]) for eqn in order]


def stages(jaxpr: Any, order: list[Any], first: Any) -> list[Group]:
    """Groups the operations ``order`` into loops over parts of the samples, and what is between and after them.

    ``first`` is the input whose leading axis is of samples.

    Raises:
        Unsupported: The samples cannot be divided into parts, or an operation cannot be computed part by part.
    """
    number = first.aval.shape[0] if first.aval.shape else 0
    if number % ROWS or number <= ROWS:
        raise Unsupported("samples that cannot be divided")
    axis = _sample_axes(order, first)
    if any(axis[var] for var in jaxpr.invars if var in axis):
        raise Unsupported("samples along another axis than the first")
    by_row = lambda eqn: any(var in axis for var in eqn.outvars)
    sums = [eqn for eqn in order if not by_row(eqn) and any(_is(atom, axis) for atom in eqn.invars)]
    for eqn in order:
        _check(eqn, axis, eqn in sums)
    stage = _stages(jaxpr, order, sums)
    parts = lambda eqn: {var: _part(var, axis) for var in (*eqn.invars, *eqn.outvars) if _is(var, axis)}
    source = {var: eqn for eqn in order for var in eqn.outvars}
    ends = [var for var in jaxpr.outvars if _is(var, axis)]
    groups: list[Group] = []
    emitted: set[int] = set()
    added_up = {id(eqn) for eqn in sums}
    last = max(stage.values(), default=1)
    to_ends = _before([source[var] for var in ends if var in source], source, added_up)
    behind = {var for eqn in order if id(eqn) in to_ends for var in eqn.invars if not isinstance(var, core.Literal)}
    last += any(stage[id(eqn)] == last and var in behind for eqn in sums for var in eqn.outvars)
    for now in range(1, last + 1):
        own = [eqn for eqn in sums if stage[id(eqn)] == now]
        rows = tuple(ends) if now == last else ()
        needed = _before([*own, *(source[var] for var in rows if var in source)], source, added_up)
        once = [eqn for eqn in order if id(eqn) in needed - emitted - added_up and not by_row(eqn)]
        groups += whole(once)
        emitted |= {id(eqn) for eqn in (*once, *own)}
        inside = [eqn for eqn in order if eqn in own or (id(eqn) in needed and by_row(eqn))]
        if inside:
            read = {atom for eqn in inside for atom in eqn.invars if _is(atom, axis) and atom not in source}
            added = tuple(var for eqn in own for var in eqn.outvars)
            groups.append(
                Group([Operation.of(eqn, parts(eqn)) for eqn in inside], number // ROWS, added, rows, tuple(read))
            )
    return groups + whole([eqn for eqn in order if id(eqn) not in emitted and not by_row(eqn)])


def _is(atom: Any, axis: dict[Any, int]) -> bool:
    return not isinstance(atom, core.Literal) and atom in axis


def _part(var: Any, axis: dict[Any, int]) -> tuple[int, ...]:
    shape = var.aval.shape
    return (*shape[: axis[var]], ROWS, *shape[axis[var] + 1 :])


def _before(ends: list[Any], source: dict[Any, Any], sums: set[int]) -> set[int]:
    """Returns the operations that ``ends`` depend on, except those that lie behind sums."""
    visited: set[int] = set()
    waiting = list(ends)
    while waiting:
        eqn = waiting.pop()
        if id(eqn) in visited:
            continue
        visited.add(id(eqn))
        inputs = [source[atom] for atom in eqn.invars if not isinstance(atom, core.Literal) and atom in source]
        waiting += [each for each in inputs if id(each) not in sums]
    return visited


def _stages(jaxpr: Any, order: list[Any], sums: list[Any]) -> dict[int, int]:
    """Assigns a loop to each sum, from 1 on: as late as possible, so that few loops compute the same."""
    own: set[int] = {id(eqn) for eqn in sums}
    depth: dict[Any, int] = {}
    for eqn in order:
        before = max((depth.get(atom, 0) for atom in eqn.invars if not isinstance(atom, core.Literal)), default=0)
        depth |= dict.fromkeys(eqn.outvars, before + (id(eqn) in own))
    deepest = max((depth[var] for eqn in sums for var in eqn.outvars), default=0)
    needed: dict[Any, int] = {}
    stage = {}
    for eqn in reversed(order):
        when = min((needed.get(var, deepest + 1) for var in eqn.outvars), default=deepest + 1)
        if id(eqn) in own:
            when = stage[id(eqn)] = when - 1
        for atom in eqn.invars:
            if not isinstance(atom, core.Literal):
                needed[atom] = min(needed.get(atom, deepest + 1), when)
    return stage


def _check(eqn: Any, axis: dict[Any, int], is_sum: bool) -> None:
    """Raises `Unsupported` for an operation that cannot be computed part by part."""
    name = eqn.primitive.name
    if is_sum:
        bad = name not in SUMS
    else:
        bad = name == "iota" and _is(eqn.outvars[0], axis) and eqn.params["dimension"] == axis[eqn.outvars[0]]
        bad |= name not in (*ELEMENTWISE, *UNCHANGED, "broadcast_in_dim", "iota") and any(
            _is(var, axis) and not any(_is(atom, axis) for atom in eqn.invars) for var in eqn.outvars
        )
    if bad:
        raise Unsupported(f"the operation {name} over samples")


def _sample_axes(order: list[Any], first: Any) -> dict[Any, int]:
    """Finds the axis of samples of every variable that has one: the leading one of ``first``, and all its equals."""
    parent: dict[tuple[Any, int], tuple[Any, int]] = {}

    def find(x: tuple[Any, int]) -> tuple[Any, int]:
        while x in parent:
            x = parent[x]
        return x

    def unite(x: tuple[Any, int], y: tuple[Any, int]) -> None:
        a, b = find(x), find(y)
        if a != b:
            parent[a] = b

    for eqn in order:
        for x, y in _same(eqn):
            if not isinstance(x[0], core.Literal) and x[0].aval.shape[x[1]] == y[0].aval.shape[y[1]]:
                unite(x, y)
    root, sample_axes = find((first, 0)), {}
    for var in {var for eqn in order for var in (*eqn.invars, *eqn.outvars) if not isinstance(var, core.Literal)}:
        own = [i for i in range(len(var.aval.shape)) if find((var, i)) == root]
        if len(own) > 1:
            raise Unsupported("two axes of samples")
        if own:
            sample_axes[var] = own[0]
    return sample_axes


def _same(eqn: Any) -> list[tuple[tuple[Any, int], tuple[Any, int]]]:
    """Pairs axes of the operands of an operation with the axes of results or of other operands that are the same."""
    name, params, outs = eqn.primitive.name, eqn.params, eqn.outvars
    shape = lambda var: var.aval.shape
    axes = lambda var: range(len(shape(var)))
    if name in ELEMENTWISE | UNCHANGED:
        return [((x, i), (outs[0], i)) for x in eqn.invars if len(shape(x)) == len(shape(outs[0])) for i in axes(x)]
    x = eqn.invars[0] if eqn.invars else None
    if name == "broadcast_in_dim":
        return [((x, i), (outs[0], to)) for i, to in enumerate(params["broadcast_dimensions"])]
    if name == "transpose":
        return [((x, i), (outs[0], to)) for to, i in enumerate(params["permutation"])]
    if name in ("reshape", "squeeze", "expand_dims"):
        before = lambda var, i: math.prod(shape(var)[:i])
        pairs = [(i, to) for i in axes(x) for to in axes(outs[0]) if before(x, i) == before(outs[0], to)]
        return [((x, i), (outs[0], to)) for i, to in pairs if shape(x)[i] > 1]
    if name.startswith(("reduce_", "arg")):
        kept = [i for i in axes(x) if i not in params["axes"]]
        return [((x, i), (outs[0], to)) for to, i in enumerate(kept)]
    if name == "dot_general":
        return _same_of_product(eqn)
    if name == "gather":
        return [((eqn.invars[1], 0), (outs[0], 0))]
    if name in ("slice", "pad"):
        return [((x, i), (outs[0], i)) for i in axes(x)]
    if name in ("concatenate", "split", "rev"):
        over = params.get("dimension", params.get("axis"))
        over = params.get("dimensions", (over,))
        return [((x, i), (out, i)) for x in eqn.invars for out in outs for i in axes(x) if i not in over]
    if name in ("stack", "unstack"):
        which = params["axis"]
        long = lambda i: i + (i >= which)
        if name == "stack":
            return [((x, i), (outs[0], long(i))) for x in eqn.invars for i in axes(x)]
        return [((x, long(i)), (out, i)) for out in outs for i in axes(out)]
    return []


def _same_of_product(eqn: Any) -> list[tuple[tuple[Any, int], tuple[Any, int]]]:
    (over, batch), sides = eqn.params["dimension_numbers"], eqn.invars
    pairs = [*zip(over[0], over[1], strict=True), *zip(batch[0], batch[1], strict=True)]
    same = [((sides[0], i), (sides[1], j)) for i, j in pairs]
    to = len(batch[0])
    same += [((sides[0], i), (eqn.outvars[0], at)) for at, i in enumerate(batch[0])]
    for side, own in enumerate(sides):
        for i in range(len(own.aval.shape)):
            if i not in (*over[side], *batch[side]):
                same.append(((own, i), (eqn.outvars[0], to)))
                to += 1
    return same
