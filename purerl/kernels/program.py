"""A whole function as one kernel."""

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
from purerl.kernels.body import Body, alike, body_of, differentiable, dtype_of, plain, run
from purerl.kernels.launch import launch
from purerl.kernels.rules import Operation
from purerl.kernels.stages import Group
from purerl.types import PyTree

MOST_AT_ONCE = 2**18
"""The most numbers that a kernel without samples returns: with more, it spills registers and takes long to compile."""
MOST_SUMMED = 2**16
"""The most numbers that a loop over samples sums up: the number of registers of a multiprocessor."""


def fuse(function: Callable[..., PyTree], name: str, samples: bool = True) -> Callable[..., PyTree]:
    """Makes one kernel of ``function(state, *more) -> (state, out)``, where kernels are on and one can compute it.

    The kernel writes the new state over the old one. Under `jax.vmap` each member has an instance of the kernel. Where
    a kernel cannot compute the function, the function itself is called, and parts of it may become kernels.

    Args:
        function: The function.
        name: The name of the kernel.
        samples: Whether the leading axis of the first array of ``more`` is of samples, of which the kernel then
            computes a few at a time.
    """

    def call(state: PyTree, *more: PyTree) -> PyTree:
        if not setting.active():
            return function(state, *more)
        try:
            return _fused(function, name, samples, state, more)
        except Unsupported:
            return function(state, *more)

    return call


def _fused(
    function: Callable[..., PyTree], name: str, samples: bool, state: PyTree, more: tuple[PyTree, ...]
) -> PyTree:
    leaves, structure = jax.tree.flatten((state, *more))
    body = body_of(lambda *flat: function(*jax.tree.unflatten(structure, flat)), *leaves)
    inputs = [*body.consts, *leaves]
    first, size = len(body.consts), len(jax.tree.leaves(state))
    used, computed = body.read, body.computed
    aliases = {}
    for at, result in enumerate(computed):
        given = first + result
        if result < size and given in used and alike(inputs[given], body.jaxpr.outvars[result].aval):
            aliases[used.index(given)] = at

    groups = _groups(body, [*body.jaxpr.invars[first + size :]] if samples else [])

    def kernel(*refs: Any) -> None:
        ins, outs = refs[: len(used)], refs[len(used) :]
        values = {}
        for i, ref in zip(used, ins, strict=True):
            aval = body.jaxpr.invars[i].aval
            values[body.jaxpr.invars[i]] = View(aval.shape, aval.dtype, ref)
        written = {computed[at]: ref for at, ref in enumerate(outs)}
        _write_early(groups, body.jaxpr.outvars, values, written, _overwritten(body, used, computed, aliases))

    out = [body.jaxpr.outvars[i].aval for i in computed]
    if not samples and sum(math.prod(x.shape) for x in out) > MOST_AT_ONCE:
        raise Unsupported("too many numbers at once")
    if any(sum(math.prod(var.aval.shape) for var in group.sums) > MOST_SUMMED for group in groups):
        raise Unsupported("sums of more numbers than a multiprocessor holds")

    def compute(*inputs: Any) -> list[Any]:
        made = launch(kernel, name, [inputs[i] for i in used], out, aliases, body.order)
        return _results(body, inputs, dict(zip(computed, made, strict=True)))

    results = differentiable(compute, functools.partial(plain, body))(*inputs)
    return jax.tree.unflatten(body.structure, results)


def _groups(body: Body, more: list[Any]) -> list[Group]:
    """Groups operations into loops over the samples that lead the first of the inputs ``more`` that they read."""
    used = order.last_reads(body.order)
    first = next((var for var in more if var in used), None)
    try:
        return stages.whole(body.order) if first is None else stages.stages(body.jaxpr, body.order, first)
    except Unsupported:
        return stages.whole(body.order)


def _overwritten(body: Body, used: list[int], computed: list[int], aliases: dict[int, int]) -> dict[int, Any]:
    """Returns the input that each result is written over."""
    return {computed[at]: body.jaxpr.invars[used[given]] for given, at in aliases.items()}


def _write_early(
    groups: list[Group], outvars: Any, values: dict[Any, Any], outs: dict[int, Any], over: dict[int, Any]
) -> None:
    """Computes groups, and writes each result as soon as the input that it overwrites is not read any more."""
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
    """Waits until all threads have finished their reads so far."""
    if setting.setting() == setting.ON:
        _, plgpu = compat.pallas()
        plgpu.debug_barrier()


def _results(body: Body, inputs: Any, made: dict[int, Any]) -> list[Any]:
    """Returns the results of a body: those of its kernel, and those that are inputs or constants."""
    given = dict(zip(body.jaxpr.invars, inputs, strict=True))
    results = []
    for i, var in enumerate(body.jaxpr.outvars):
        if i in made:
            results.append(made[i].reshape(var.aval.shape))
        elif isinstance(var, core.Literal):
            results.append(jnp.asarray(var.val, dtype_of(var)))
        else:
            results.append(given[var])
    return results
