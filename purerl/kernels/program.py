"""Makes kernels: of a function whole, and of a scan over steps."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from purerl import compat
from purerl.kernels import blocks, order, setting, stages
from purerl.kernels.blocks import Block, Unsupported, View
from purerl.kernels.body import Body, body_of, dtype_of, read, run
from purerl.kernels.rules import Operation
from purerl.kernels.stages import Group
from purerl.types import PyTree

MOST_KEPT = 8192
"""Numbers that a scan reads once at most, before its first step."""
NUMBERS_OF_A_WARP = 1024
"""Numbers of the largest array for each warp of 32 threads."""
WARPS = 4, 8
"""Warps of a kernel at least and at most."""


def fuse(function: Callable[..., PyTree], name: str) -> Callable[..., PyTree]:
    """``function(state, *more) -> (state, out)`` as one kernel, where kernels are wanted and it can be one.

    The first array of ``more`` leads with the samples, of which the kernel computes a few at a time.
    The kernel writes the new state over the old one. Under `jax.vmap` each member has an instance of the kernel. Where
    a kernel cannot compute the function, the function is what it was.
    """

    def call(state: PyTree, *more: PyTree) -> PyTree:
        if setting.setting() == setting.OFF or compat.pallas() is None:
            return function(state, *more)
        try:
            return _fused(function, name, state, more)
        except Unsupported:
            with setting.using(setting.OFF):
                return function(state, *more)

    return call


def _fused(function: Callable[..., PyTree], name: str, state: PyTree, more: tuple[PyTree, ...]) -> PyTree:
    leaves, structure = jax.tree.flatten((state, *more))
    body = body_of(lambda *flat: function(*jax.tree.unflatten(structure, flat)), *leaves)
    inputs = [*body.consts, *leaves]
    first, size = len(body.consts), len(jax.tree.leaves(state))
    used, computed = body.read, body.computed
    aliases = {}
    for at, result in enumerate(computed):
        given = first + result
        if result < size and given in used and _alike(inputs[given], body.jaxpr.outvars[result].aval):
            aliases[used.index(given)] = at

    groups = _groups(body, [*body.jaxpr.invars[first + size :]])

    def kernel(*refs: Any) -> None:
        ins, outs = refs[: len(used)], refs[len(used) :]
        values = {}
        for i, ref in zip(used, ins, strict=True):
            aval = body.jaxpr.invars[i].aval
            values[body.jaxpr.invars[i]] = View(aval.shape, aval.dtype, ref)
        written = {computed[at]: ref for at, ref in enumerate(outs)}
        _write_early(groups, body.jaxpr.outvars, values, written, _overwritten(body, used, computed, aliases))

    out = [body.jaxpr.outvars[i].aval for i in computed]

    def compute(*inputs: Any) -> list[Any]:
        made = _call(kernel, name, [inputs[i] for i in used], out, aliases, body)
        return _results(body, inputs, dict(zip(computed, made, strict=True)))

    results = _differentiable(compute, functools.partial(_plain, body))(*inputs)
    return jax.tree.unflatten(body.structure, results)


def _plain(body: Body, *inputs: Any) -> list[Any]:
    """The results of a body without a kernel."""
    first = len(body.consts)
    found: list[Any] = core.jaxpr_as_fun(core.ClosedJaxpr(body.closed.jaxpr, [*inputs[:first]]))(*inputs[first:])
    return found


def _differentiable(compute: Callable[..., list[Any]], plain: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """``compute``, with the derivatives of ``plain``, which computes the same."""
    function = jax.custom_jvp(compute)
    function.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    return function


def _groups(body: Body, more: list[Any]) -> list[Group]:
    """The operations of a body in loops over the samples that lead the first of the inputs ``more`` that it reads."""
    used = order.last_reads(body.order)
    first = next((var for var in more if var in used), None)
    try:
        return stages.whole(body.order) if first is None else stages.stages(body.jaxpr, body.order, first)
    except Unsupported:
        return stages.whole(body.order)


def _alike(array: Any, aval: Any) -> bool:
    return array.shape == aval.shape and array.dtype == aval.dtype


def _overwritten(body: Body, used: list[int], computed: list[int], aliases: dict[int, int]) -> dict[int, Any]:
    """The input that each result is written over."""
    return {computed[at]: body.jaxpr.invars[used[given]] for given, at in aliases.items()}


def _write_early(
    groups: list[Group], outvars: Any, values: dict[Any, Any], outs: dict[int, Any], over: dict[int, Any]
) -> None:
    """Computes groups, and writes each result as soon as what it is written over is not read any more."""
    final = {atom: i for i, group in enumerate(groups) for eqn in group.operations for atom in _variables(eqn)}
    waiting: list[tuple[int, int, Block]] = []
    results: dict[Any, list[int]] = {}
    for result in outs:
        results.setdefault(outvars[result], []).append(result)

    def done(i: int, var: Any, block: Block, part: Any) -> None:
        if part is not None:
            for result in results.get(var, ()):
                start = part * np.int32(math.prod(block.shape))
                blocks.store(View(block.shape, block.dtype, outs[result], start), block)
            return
        waiting.extend((final.get(over.get(result), -1), result, block) for result in results.get(var, ()))
        ready = [each for each in waiting if each[0] <= i]
        if any(result in over for _, result, _ in ready):
            _barrier()
        for each in ready:
            waiting.remove(each)
            blocks.store(View(each[2].shape, each[2].dtype, outs[each[1]]), each[2])

    run(groups, values, done)


def _variables(eqn: Operation) -> list[Any]:
    return [atom for atom in eqn.invars if not isinstance(atom, core.Literal)]


def _barrier() -> None:
    """All threads have read what they read so far."""
    if setting.setting() == setting.ON:
        _, plgpu = compat.pallas()
        plgpu.debug_barrier()


def _results(body: Body, inputs: Any, made: dict[int, Any]) -> list[Any]:
    """The results of a body: those of its kernel, and those that are inputs or constants."""
    given = dict(zip(body.jaxpr.invars, inputs, strict=True))
    found = []
    for i, var in enumerate(body.jaxpr.outvars):
        if i in made:
            found.append(made[i].reshape(var.aval.shape))
        elif isinstance(var, core.Literal):
            found.append(jnp.asarray(var.val, dtype_of(var)))
        else:
            found.append(given[var])
    return found


def _unread(body: Body) -> int:
    """Bytes of the inputs that a kernel takes rows of, less those of the rows."""
    total = 0
    for eqn in body.order:
        if eqn.primitive.name == "gather":
            source, rows = eqn.invars[0].aval, eqn.outvars[0].aval
            total += max(0, math.prod(source.shape) - math.prod(rows.shape)) * source.dtype.itemsize
    return total


def _call(
    kernel: Callable[..., None], name: str, inputs: list[Any], out: list[Any], aliases: dict[int, int], body: Body
) -> Any:
    """Calls a kernel with flat inputs; its results are flat, too. What it does not read of them is in its metadata."""
    pl, plgpu = compat.pallas()
    largest = max((math.prod(var.aval.shape) for eqn in body.order for var in eqn.outvars), default=1)
    warps = min(WARPS[1], max(WARPS[0], 1 << max(1, largest // NUMBERS_OF_A_WARP).bit_length() - 1))
    return pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct((max(1, math.prod(x.shape)),), x.dtype) for x in out],
        input_output_aliases=aliases,
        interpret=setting.setting() == setting.INTERPRETED,
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        name=name,
        metadata={compat.UNREAD: str(_unread(body))},
    )(*(jnp.reshape(x, (-1,)) for x in inputs))


def scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    xs: PyTree,
    length: int,
    name: str,
    plain: Callable[..., tuple[PyTree, PyTree]],
    reverse: bool = False,
) -> tuple[PyTree, PyTree]:
    """``plain(step, state, xs, length)``, a `jax.lax.scan`, as one kernel that holds the state on the chip from step to
    step, where kernels are wanted and it can be one. ``reverse``: ``plain`` goes from the last step to the first.

    What ``step`` reads besides is read once if it is small enough, before the first step.
    """
    if setting.setting() == setting.OFF or compat.pallas() is None:
        return plain(step, state, xs, length)
    try:
        return _scanned(step, state, xs, length, name, reverse)
    except Unsupported:
        with setting.using(setting.OFF):
            return plain(step, state, xs, length)


def _scanned(
    step: Callable, state: PyTree, xs: PyTree, length: int, name: str, reverse: bool = False
) -> tuple[PyTree, PyTree]:
    leaves, structure = jax.tree.flatten(state)
    rows, row_structure = jax.tree.flatten(xs)
    one = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
    unflatten = jax.tree.unflatten

    def flat_step(*flat: Any) -> PyTree:
        return step(unflatten(structure, flat[: len(leaves)]), unflatten(row_structure, flat[len(leaves) :]))

    body = body_of(flat_step, *leaves, *one)
    for var, leaf in zip(body.jaxpr.outvars, leaves, strict=False):
        if not _alike(leaf, var.aval):
            raise Unsupported("a state that changes its type")
    first, size = len(body.consts), len(leaves)
    inputs = [*body.consts, *leaves, *rows]
    invars, outvars = body.jaxpr.invars, body.jaxpr.outvars
    passed = [var for var in outvars if not isinstance(var, core.Literal)]
    used = sorted({*body.read, *range(first, first + size), *(i for i, var in enumerate(invars) if var in passed)})
    if any(not jnp.issubdtype(invars[i].aval.dtype, np.generic) for i in used):
        raise Unsupported("random keys")
    constant = [i for i in used if i < first]
    kept = sum(math.prod(invars[i].aval.shape) for i in constant) <= MOST_KEPT

    def kernel(*refs: Any) -> None:
        ins, outs = dict(zip(used, refs, strict=False)), refs[len(used) :]
        view = lambda i, start=0: View(invars[i].aval.shape, invars[i].aval.dtype, ins[i], start)
        fixed = {invars[i]: blocks.load(view(i)) if kept else view(i) for i in constant}
        begin = [blocks.load(view(i)) for i in range(first, first + size)]

        def one_step(i: Any, pieces: list[Any]) -> list[Any]:
            t = np.int32(length - 1) - i if reverse else i
            values, found = dict(fixed), iter(pieces)
            for i in range(first, first + size):
                values[invars[i]] = blocks.unflat(invars[i].aval.shape, invars[i].aval.dtype, found)
            for i in used:
                if i >= first + size:
                    values[invars[i]] = view(i, t * np.int32(math.prod(invars[i].aval.shape)))
            run(stages.whole(body.order), values, lambda i, var, block, part: None)
            for var, ref in zip(outvars[size:], outs[size:], strict=True):
                block = read(values, var)
                blocks.store(View(block.shape, block.dtype, ref, t * np.int32(math.prod(block.shape))), block)
            return [piece for var in outvars[:size] for piece in blocks.flat(read(values, var))]

        pieces = [piece for block in begin for piece in blocks.flat(block)]
        found = iter(jax.lax.fori_loop(0, length, one_step, pieces))
        for i, ref in zip(range(first, first + size), outs, strict=False):
            aval = invars[i].aval
            blocks.store(View(aval.shape, aval.dtype, ref), blocks.unflat(aval.shape, aval.dtype, found))

    out = [x.aval for x in outvars[:size]]
    out += [jax.ShapeDtypeStruct((length, *x.aval.shape), x.aval.dtype) for x in outvars[size:]]

    def compute(*inputs: Any) -> list[Any]:
        made = _call(kernel, name, [inputs[i] for i in used], out, {}, body)
        return [x.reshape(like.shape) for x, like in zip(made, out, strict=True)]

    def plain(*inputs: Any) -> list[Any]:
        consts, begin, xs = inputs[:first], [*inputs[first : first + size]], [*inputs[first + size :]]

        def one(state: Any, row: Any) -> Any:
            found = _plain(body, *consts, *state, *row)
            return found[:size], found[size:]

        ended, rows = jax.lax.scan(one, begin, xs, length, reverse)
        return [*ended, *rows]

    return unflatten(body.structure, _differentiable(compute, plain)(*inputs))
