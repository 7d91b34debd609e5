"""A scan over steps as one kernel, and its derivative as another."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from purerl.kernels import blocks, order, setting, stages
from purerl.kernels.blocks import Unsupported, View
from purerl.kernels.body import Body, alike, body_of, differentiable, plain, read, run
from purerl.kernels.launch import launch
from purerl.types import PyTree

MOST_KEPT = 8192
"""The most numbers that a scan reads once, before its first step."""

Step = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
Scan = Callable[[Step, PyTree, PyTree, int], tuple[PyTree, PyTree]]


def scan(
    step: Step, state: PyTree, xs: PyTree, length: int, name: str, plain: Scan, reverse: bool = False
) -> tuple[PyTree, PyTree]:
    """Computes ``plain(step, state, xs, length)``, a `jax.lax.scan`, as one kernel that holds the state on the chip.

    It is a kernel where kernels are on and one can compute it; otherwise ``plain`` is called. What ``step`` reads
    besides its arguments is read once, before the first step, if it is small enough.

    The derivative of a scan whose state is of floats is a kernel, too, which goes through the steps the other way and
    computes each again. It does not hold the derivative by what all steps read on the chip: that is computed for all
    steps at once, in matrix products as large as possible. Such a scan has no forward derivative: `jax.jvp` raises
    `TypeError`.

    Args:
        step: The function of one step, ``(state, x) -> (state, out)``.
        state: The state before the first step.
        xs: Leaves are ``[length, ...]``.
        length: The number of steps.
        name: The name of the kernel.
        plain: The scan without a kernel.
        reverse: Whether ``plain`` goes from the last step to the first.

    Returns:
        The state after the last step, and the outputs ``[length, ...]``.
    """
    if not setting.active():
        return plain(step, state, xs, length)
    try:
        return _scanned(step, state, xs, length, name, reverse)
    except Unsupported:
        return plain(step, state, xs, length)


def _scanned(step: Step, state: PyTree, xs: PyTree, length: int, name: str, reverse: bool) -> tuple[PyTree, PyTree]:
    leaves, structure = jax.tree.flatten(state)
    rows, row_structure = jax.tree.flatten(xs)
    one = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
    unflatten, size = jax.tree.unflatten, len(leaves)

    def flat_step(*flat: Any) -> PyTree:
        return step(unflatten(structure, flat[:size]), unflatten(row_structure, flat[size:]))

    body = body_of(flat_step, *leaves, *one)
    if not all(alike(leaf, var.aval) for var, leaf in zip(body.jaxpr.outvars, leaves, strict=False)):
        raise Unsupported("a state that changes its type")

    def one_step(consts: Any, state: Any, row: Any) -> tuple[list[Any], list[Any]]:
        results = plain(body, *consts, *state, *row)
        return results[:size], results[size:]

    def compute(consts: Any, state: Any, rows: Any) -> tuple[list[Any], list[Any]]:
        made = _kernel(body, [*consts, *state, *rows], size, length, name, reverse)
        return made[:size], made[size:]

    def scanned(consts: Any, state: Any, rows: Any) -> Any:
        return jax.lax.scan(functools.partial(one_step, consts), state, rows, length, reverse)

    if all(jnp.issubdtype(x.dtype, jnp.inexact) for x in leaves):
        compute = _with_own_derivative(compute, one_step, length, name, reverse)
    else:
        compute = differentiable(compute, scanned)
    ended, out = compute(body.consts, leaves, rows)
    return unflatten(body.structure, [*ended, *out])


def _with_own_derivative(compute: Callable, one_step: Callable, length: int, name: str, reverse: bool) -> Callable:
    """Gives ``compute`` a backward derivative that is a kernel, see `scan`."""

    def forward(consts: Any, state: Any, rows: Any) -> Any:
        def keeping(state: Any, row: Any) -> Any:
            following, out = one_step(consts, state, row)
            return following, (out, state)

        steps = functools.partial(jax.lax.scan, reverse=reverse)
        ended, (out, states) = scan(keeping, state, rows, length, name, steps, reverse)
        return (ended, out), (consts, states, rows)

    def backward(kept: Any, derivatives: Any) -> Any:
        consts, states, rows = kept
        by_end, by_out = derivatives

        def back(by_following: Any, step: Any) -> Any:
            state, row, by_out = step
            _, pull = jax.vjp(lambda state: one_step(consts, state, row), state)
            return pull((by_following, by_out))[0], by_following

        steps = functools.partial(jax.lax.scan, reverse=not reverse)
        by_start, by_each = scan(back, by_end, (states, rows, by_out), length, f"{name}_back", steps, not reverse)
        _, pull = jax.vjp(lambda consts, rows: jax.vmap(one_step, (None, 0, 0))(consts, states, rows), consts, rows)
        by_consts, by_rows = pull((by_each, by_out))
        return by_consts, by_start, by_rows

    function = jax.custom_vjp(compute)
    function.defvjp(forward, backward)
    return function


def _kernel(body: Body, inputs: list[Any], size: int, length: int, name: str, reverse: bool) -> list[Any]:
    """Computes the state after the last step, of ``size`` arrays, and the results of all steps."""
    first = len(body.consts)
    invars, outvars = body.jaxpr.invars, body.jaxpr.outvars
    shared = _shared(body, inputs[:first])
    steps = [eqn for eqn in body.order if eqn.outvars[0] not in shared]
    needed = {*order.last_reads(steps), *(var for var in outvars if not isinstance(var, core.Literal))}
    fixed = [var for var in shared if var in needed]
    begin, rows = invars[first : first + size], [var for var in invars[first + size :] if var in needed]
    if any(not jnp.issubdtype(var.aval.dtype, np.generic) for var in (*fixed, *begin, *rows)):
        raise Unsupported("random keys")
    kept = sum(math.prod(var.aval.shape) for var in fixed) <= MOST_KEPT

    def kernel(*refs: Any) -> None:
        ins, outs = dict(zip((*fixed, *begin, *rows), refs, strict=False)), refs[len(fixed) + size + len(rows) :]
        view = lambda var, start=0: View(var.aval.shape, var.aval.dtype, ins[var], start)
        own = {var: blocks.load(view(var)) if kept else view(var) for var in fixed}

        def one_step(i: Any, pieces: list[Any]) -> list[Any]:
            t = np.int32(length - 1) - i if reverse else i
            values, remaining = dict(own), iter(pieces)
            for var in begin:
                values[var] = blocks.unflat(var.aval.shape, var.aval.dtype, remaining)
            for var in rows:
                values[var] = view(var, t * np.int32(math.prod(var.aval.shape)))
            run(stages.whole(steps), values, lambda i, var, block, part: None)
            for var, ref in zip(outvars[size:], outs[size:], strict=True):
                block = read(values, var)
                blocks.store(View(block.shape, block.dtype, ref, t * np.int32(math.prod(block.shape))), block)
            return [piece for var in outvars[:size] for piece in blocks.flat(read(values, var))]

        pieces = [piece for var in begin for piece in blocks.flat(blocks.load(view(var)))]
        last_pieces = iter(jax.lax.fori_loop(0, length, one_step, pieces))
        for var, ref in zip(begin, outs, strict=False):
            aval = var.aval
            blocks.store(View(aval.shape, aval.dtype, ref), blocks.unflat(aval.shape, aval.dtype, last_pieces))

    out = [x.aval for x in outvars[:size]]
    out += [jax.ShapeDtypeStruct((length, *x.aval.shape), x.aval.dtype) for x in outvars[size:]]
    given = shared | dict(zip(invars, inputs, strict=True))
    made = launch(kernel, name, [given[var] for var in (*fixed, *begin, *rows)], out, {}, steps)
    return [x.reshape(like.shape) for x, like in zip(made, out, strict=True)]


def _shared(body: Body, consts: list[Any]) -> dict[Any, Any]:
    """Returns what all steps read: constants, and what is made of these alone and is no larger."""
    values = dict(zip(body.jaxpr.invars, consts, strict=False))
    size = lambda atoms: sum(math.prod(atom.aval.shape) for atom in atoms)
    for eqn in body.order:
        read = [atom for atom in eqn.invars if not isinstance(atom, core.Literal)]
        if read and all(atom in values for atom in read) and size(eqn.outvars) <= size(read):
            given = [atom.val if isinstance(atom, core.Literal) else values[atom] for atom in eqn.invars]
            made = eqn.primitive.bind(*given, **eqn.params)
            values |= zip(eqn.outvars, made if eqn.primitive.multiple_results else [made], strict=True)
    return values
