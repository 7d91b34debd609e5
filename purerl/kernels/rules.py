"""The operations that a kernel can compute: a function for each operation of JAX, from `Block`s to `Block`s."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.kernels import blocks, moves
from purerl.kernels.blocks import Block, Unsupported

ARITHMETIC = {"add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "abs", "sign", "floor", "ceil"}
POWERS = {"exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sqrt", "rsqrt", "square", "integer_pow", "pow"}
ANGLES = {"sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"}
BITS = {"and", "or", "xor", "not", "shift_left", "shift_right_arithmetic", "shift_right_logical"}
CHOICES = {
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "select_n",
    "convert_element_type",
    "clamp",
    "is_finite",
    "bitcast_convert_type",
    "cbrt",
}
SPELT_OUT: dict[str, Callable[[Any], Any]] = {"one_minus_square": lambda x: np.float32(1) - x * x}
"""Operations that Triton lacks, in terms of others; ``one_minus_square`` is in jax 0.11's derivative of tanh."""
ELEMENTWISE = frozenset(ARITHMETIC | POWERS | ANGLES | BITS | CHOICES | {*SPELT_OUT})
"""Operations on numbers at the same place, which Triton has as well."""
UNCHANGED = frozenset(["stop_gradient", "copy", "copy_p", "optimization_barrier"])

Rule = Callable[..., list[Block]]


class Operation(NamedTuple):
    """An operation of JAX, with the ``shapes`` of its results, which may be parts of those that JAX knows."""

    primitive: Any
    params: dict[str, Any]
    invars: list[Any]
    outvars: list[Any]
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, eqn: Any, local: dict[Any, tuple[int, ...]] | None = None) -> "Operation":
        """Makes an operation of an equation of a jaxpr; ``local`` replaces the shapes of some of its variables."""
        local, params = local or {}, eqn.params
        if eqn.primitive.name == "slice" and eqn.invars[0] in local:
            ends = zip(eqn.params["limit_indices"], eqn.invars[0].aval.shape, local[eqn.invars[0]], strict=True)
            params = {**params, "limit_indices": tuple(now if end == was else end for end, was, now in ends)}
        return cls(eqn.primitive, params, eqn.invars, eqn.outvars, [local.get(x, x.aval.shape) for x in eqn.outvars])


def compute(eqn: Any, given: list[Block]) -> list[Block]:
    """Computes the results of an operation.

    Raises:
        Unsupported: A kernel cannot compute it.
    """
    name = eqn.primitive.name
    if name in UNCHANGED:
        return list(given)
    if name in ELEMENTWISE:
        return [_elementwise(eqn, given)]
    if name not in RULES:
        raise Unsupported(f"the operation {name}")
    return RULES[name](eqn, *given)


def _out(eqn: Any, which: int = 0) -> tuple[tuple[int, ...], Any]:
    return eqn.shapes[which], eqn.outvars[which].aval.dtype


def _elementwise(eqn: Any, given: list[Block]) -> Block:
    shape, dtype = _out(eqn)
    wide = blocks.widths(shape)
    given = [moves.broadcast(x, shape, range(len(shape))) if x.shape not in (shape, ()) else x for x in given]

    def piece(place: tuple[int, ...]) -> Any:
        own = [x.pieces[place if x.shape else ()] for x in given]
        if all(isinstance(x, np.generic) for x in own):
            return _constant(eqn, own, dtype)
        own = [blocks.spread(x, wide) for x in own]
        if eqn.primitive.name in SPELT_OUT:
            return jnp.asarray(SPELT_OUT[eqn.primitive.name](jnp.asarray(own[0], np.float32)), dtype)
        if eqn.primitive.name == "convert_element_type" or jnp.bfloat16 not in {x.dtype for x in own}:
            return eqn.primitive.bind(*own, **eqn.params)
        longer = [jnp.asarray(x, np.float32) if x.dtype == jnp.bfloat16 else x for x in own]
        return jnp.asarray(eqn.primitive.bind(*longer, **eqn.params), dtype)

    return blocks.make(shape, dtype, piece)


def _constant(eqn: Any, numbers: list[Any], dtype: Any) -> Any:
    """Computes an operation on constants, whose result is a constant."""
    with jax.ensure_compile_time_eval():
        return np.asarray(eqn.primitive.bind(*numbers, **eqn.params), dtype)[()]


def _reduce(combine: Callable, along: Callable, neutral: Callable[[Any], Any], eqn: Any, x: Block) -> list[Block]:
    """Reduces over the axes of an operation: piece by piece, masked, and then within a piece one axis after another."""
    shape, dtype = _out(eqn)
    over = sorted(eqn.params["axes"], reverse=True)
    kept = [i for i in range(len(x.shape)) if i not in over]
    inner = [blocks.rank_before(x.shape, i) for i in over if blocks.axis(x.shape[i]).width]
    start = neutral(x.dtype)

    def piece(place: tuple[int, ...]) -> Any:
        result = None
        for at in blocks.positions(x.shape):
            if tuple(at[i] for i in kept) == place:
                own = blocks.only_inside(x, at, start, over)
                result = own if result is None else combine(result, own)
        for rank in inner:
            result = along(result, axis=rank)
        return result

    return [blocks.make(shape, dtype, piece)]


def _lowest(dtype: Any) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    return np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).max


def _sum(x: Any, axis: int) -> Any:
    return jnp.sum(x, axis=axis, dtype=x.dtype)


_reduce_sum = functools.partial(_reduce, jnp.add, _sum, lambda dtype: 0)
_reduce_max = functools.partial(_reduce, jnp.maximum, jnp.max, _lowest)
_reduce_min = functools.partial(_reduce, jnp.minimum, jnp.min, _highest)


def combined(name: str, before: Block, more: Block) -> Block:
    """Combines the results of a sum (`stages.SUMS`) over some numbers and over more."""
    combine = {"reduce_max": jnp.maximum, "reduce_min": jnp.minimum, "reduce_and": jnp.logical_and}
    combine |= {"reduce_or": jnp.logical_or}
    own = combine.get(name, jnp.add)
    return blocks.make(before.shape, before.dtype, lambda at: own(before.pieces[at], more.pieces[at]))


def neutral(name: str, shape: tuple[int, ...], dtype: Any) -> Block:
    """Returns the result of a sum over nothing."""
    value = {"reduce_max": _lowest, "reduce_min": _highest, "reduce_and": lambda dtype: True}.get(name, lambda dtype: 0)
    return blocks.make(shape, dtype, lambda at: blocks.full(blocks.widths(shape), value(dtype), dtype))


def _as_words(reduce: Rule, eqn: Any, x: Block) -> list[Block]:
    """Computes ``reduce_and`` and ``reduce_or`` of bools as a minimum and a maximum of integers."""
    words = blocks.make(x.shape, np.int32, lambda place: jnp.asarray(x.pieces[place], np.int32))
    [reduced] = reduce(eqn, words)
    return [blocks.make(reduced.shape, bool, lambda place: reduced.pieces[place] > 0)]


def _arg(better: Callable, within: Callable, worst: Callable[[Any], Any], eqn: Any, x: Block) -> list[Block]:
    """Computes ``argmax`` and ``argmin`` along one axis: the first of equals."""
    shape, dtype = _out(eqn)
    [over] = eqn.params["axes"]
    width, rank = blocks.axis(x.shape[over]).width, blocks.rank_before(x.shape, over)
    if width and x.pieces.shape[over] > 1:
        raise Unsupported(f"argmax of an array of shape {x.shape}")

    def piece(place: tuple[int, ...]) -> Any:
        if width:
            own = blocks.only_inside(x, (*place[:over], 0, *place[over:]), worst(x.dtype), [over])
            return within(own, axis=rank).astype(dtype)
        best, index = x.pieces[(*place[:over], 0, *place[over:])], None
        for i in range(1, x.shape[over]):
            own = x.pieces[(*place[:over], i, *place[over:])]
            take = better(own, best)
            before = blocks.full(jnp.shape(best), 0, dtype) if index is None else index
            index = jnp.where(take, blocks.full(jnp.shape(best), i, dtype), before)
            best = jnp.where(take, own, best)
        return blocks.full(jnp.shape(best), 0, dtype) if index is None else index

    return [blocks.make(shape, dtype, piece)]


def _dot_general(eqn: Any, left: Block, right: Block) -> list[Block]:
    """Sums products over pieces; `_product` computes that of two pieces."""
    (left_over, right_over), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    shape, dtype = _out(eqn)
    if any(blocks.axis(left.shape[i]).width for i in left_batch):
        raise Unsupported("a product of many pairs of matrices")
    left_free = [i for i in range(len(left.shape)) if i not in (*left_over, *left_batch)]
    right_free = [i for i in range(len(right.shape)) if i not in (*right_over, *right_batch)]
    order = [*left_batch, *left_free, *left_over], [*right_batch, *right_free, *right_over]
    left, right = moves.transposed(left, order[0]), moves.transposed(right, order[1])
    batch, rows = len(left_batch), len(left_batch) + len(left_free)
    summed = left.shape[rows:]
    ends = [range(rows, len(left.shape)), range(batch + len(right_free), len(right.shape))]

    def piece(place: tuple[int, ...]) -> Any:
        total = None
        for k in blocks.positions(summed):
            at = (*place[:rows], *k), (*place[:batch], *place[rows:], *k)
            own = [blocks.only_inside(x, y, 0, end) for x, y, end in zip((left, right), at, ends, strict=True)]
            term = _product(own[0], own[1], len(blocks.widths(summed)), eqn.params["precision"], dtype)
            total = term if total is None else total + term
        return total

    return [blocks.make(shape, dtype, piece)]


def _product(a: Any, b: Any, summed: int, precision: Any, dtype: Any) -> Any:
    """Multiplies ``[M, K]`` and ``[N, K]`` to ``[M, N]``, where each of the axes may be absent.

    Only with all three it is a product for tensor cores.
    """
    rows, columns = jnp.ndim(a) - summed, jnp.ndim(b) - summed
    if rows > 1 or columns > 1 or summed > 1:
        raise Unsupported("a product over several axes")
    if rows and columns and summed:
        return jax.lax.dot_general(a, b.T, (((1,), (0,)), ((), ())), precision, dtype)
    exact = np.dtype(np.float32) if dtype == jnp.bfloat16 else dtype
    return jnp.asarray(_product_of_vectors(jnp.asarray(a, exact), jnp.asarray(b, exact), rows, columns, summed), dtype)


def _product_of_vectors(a: Any, b: Any, rows: int, columns: int, summed: int) -> Any:
    """Computes `_product` where an axis is absent."""
    if not summed:
        wide = jnp.shape(a) + jnp.shape(b)
        return _along(a, wide, range(rows)) * _along(b, wide, range(rows, rows + columns))
    wide = jnp.shape(a if rows else b)
    long, short = _along(a, wide, range(len(wide) - 1 - rows, len(wide))), range(len(wide) - 1 - columns, len(wide))
    return jnp.sum(long * _along(b, wide, short), axis=-1)


def _along(x: Any, wide: tuple[int, ...], dimensions: Any) -> Any:
    return jax.lax.broadcast_in_dim(x, wide, tuple(dimensions)) if jnp.ndim(x) else blocks.spread(x, wide)


def _iota(eqn: Any) -> list[Block]:
    shape, dtype = _out(eqn)
    which = eqn.params["dimension"]
    return [blocks.make(shape, dtype, lambda place: jnp.asarray(blocks.counter(shape, place, which), dtype))]


def _broadcast(eqn: Any, x: Block) -> list[Block]:
    shape, _ = _out(eqn)
    return [moves.broadcast(x, shape, eqn.params["broadcast_dimensions"])]


def _reshape(eqn: Any, x: Block) -> list[Block]:
    if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
        raise Unsupported("a reshape in another order")
    return [moves.reshaped(x, _out(eqn)[0])]


def _slice(eqn: Any, x: Block) -> list[Block]:
    for which, step in enumerate(eqn.params["strides"] or (1,) * len(x.shape)):
        chosen = range(eqn.params["start_indices"][which], eqn.params["limit_indices"][which], step)
        x = moves.chosen(x, which, chosen)
    return [x]


def _split(eqn: Any, x: Block) -> list[Block]:
    ends = np.cumsum(eqn.params["sizes"])
    parts = zip(ends - np.asarray(eqn.params["sizes"]), ends, strict=True)
    return [moves.chosen(x, eqn.params["axis"], range(start, end)) for start, end in parts]


def _pad(eqn: Any, x: Block, value: Block) -> list[Block]:
    for which, (low, high, between) in enumerate(eqn.params["padding_config"]):
        if between or min(low, high) < 0:
            raise Unsupported("padding between numbers")
        for size, before in ((low, True), (high, False)):
            if size:
                shape = (*x.shape[:which], size, *x.shape[which + 1 :])
                border = moves.broadcast(value, shape, ())
                x = moves.joined([border, x] if before else [x, border], which)
    return [x]


def _stack(eqn: Any, *given: Block) -> list[Block]:
    which = eqn.params["axis"]
    longer = [moves.reshaped(x, (*x.shape[:which], 1, *x.shape[which:])) for x in given]
    return [moves.joined(longer, which)]


def _unstack(eqn: Any, x: Block) -> list[Block]:
    which = eqn.params["axis"]
    shape = (*x.shape[:which], *x.shape[which + 1 :])
    return [moves.reshaped(moves.chosen(x, which, range(i, i + 1)), shape) for i in range(x.shape[which])]


RULES: dict[str, Rule] = {
    "reduce_sum": _reduce_sum,
    "reduce_max": _reduce_max,
    "reduce_min": _reduce_min,
    "reduce_and": functools.partial(_as_words, _reduce_min),
    "reduce_or": functools.partial(_as_words, _reduce_max),
    "argmax": functools.partial(_arg, jnp.greater, jnp.argmax, _lowest),
    "argmin": functools.partial(_arg, jnp.less, jnp.argmin, _highest),
    "dot_general": _dot_general,
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda eqn, x: [moves.transposed(x, eqn.params["permutation"])],
    "slice": _slice,
    "split": _split,
    "pad": _pad,
    "concatenate": lambda eqn, *given: [moves.joined(list(given), eqn.params["dimension"])],
    "stack": _stack,
    "unstack": _unstack,
    "rev": lambda eqn, x: [functools.reduce(moves.reversed_along, eqn.params["dimensions"], x)],
}
"""The operations that are neither elementwise nor unchanged, by name."""
