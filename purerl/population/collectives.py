"""A program of one shard, run for all shards of an agent on one device or several.

What a shard computes is traced once, with the shards of the agent as an axis (`purerl.shards`). Here that trace is
evaluated for the shards of a device, one after another, up to each of its collectives, which join the shards of the
device and then those of all devices. What does not depend on the shard, such as parameters, is computed and held once a
device; it is known by following which values come from the number of the shard. So nothing that an agent has but once
can come to differ between its devices.
"""

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params

from purerl import backend, compat, shards
from purerl.kernels import choice
from purerl.types import Array, PyTree

COLLECTIVES = "psum", "pmax", "all_gather"
INSIDE = "jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint"
"""Operations that only compute what is inside of them."""


class Cut(NamedTuple):
    """How an agent is cut: into ``shards``, of which a device has ``here``, one after another.

    ``axis`` names the mesh axis over the devices of an agent (None: there is one). Sums are ``exact`` if they are added
    in the order of the shards, whatever the devices.
    """

    shards: int
    here: int
    axis: str | None = None
    exact: bool = False


@jax.tree_util.register_pytree_node_class
class Each(tuple):
    """A value that every shard has its own of: those of the shards of this device."""

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Returns the shards' values as the children of a tree."""
        return tuple(self), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Sequence[Any]) -> "Each":
        """Returns the inverse of `tree_flatten`."""
        return cls(children)


Value = Any
"""An array that all shards share, or an `Each`."""


class Traced(NamedTuple):
    """What a shard computes, and the structure of the results with their shapes."""

    jaxpr: ClosedJaxpr
    shapes: PyTree


def trace(function: Callable[..., PyTree], count: int, *args: PyTree) -> Traced:
    """Traces ``function(*args)`` as one of ``count`` shards; ``args`` are arrays or shapes of one shard."""
    with choice.wanted(choice.OFF):  # collectives cannot be in kernels
        made = jax.make_jaxpr(function, axis_env=[(shards.AXIS, count)], return_shape=True)(*args)
    return Traced(*made)


def differing(traced: Traced, *args: PyTree) -> PyTree:
    """Returns which results differ between shards, as a tree of bools, by which of the ``args`` do, trees of bools."""
    found = _flags(_open(traced.jaxpr)[0], tuple(jax.tree.leaves(args)))
    return jax.tree.unflatten(jax.tree.structure(traced.shapes), found)


def run(traced: Traced, cut: Cut, *args: PyTree) -> PyTree:
    """Computes what was traced for the shards of this device. Leaves of ``args`` and of the results are `Each` where
    shards differ. If sums are exact, the first float among ``args`` must be finite, and an argument of the program."""
    leaves = jax.tree.leaves(args, is_leaf=lambda x: isinstance(x, Each))
    floats = (x for x in leaves if not isinstance(x, Each) and jnp.issubdtype(x.dtype, jnp.floating) and x.ndim == 0)
    sure = jnp.isfinite(next(floats)) if cut.exact else None
    found = _evaluate(_Here(cut, sure), *_open(traced.jaxpr), leaves)
    return jax.tree.unflatten(jax.tree.structure(traced.shapes), found)


def apart(tree: PyTree, differs: PyTree, cut: Cut) -> PyTree:
    """Returns ``tree``, whose leaves that ``differs`` lead with the shards of this device, with these as `Each`."""
    return jax.tree.map(lambda x, own: Each(x[i] for i in range(cut.here)) if own else x, tree, differs)


def together(tree: PyTree, differs: PyTree, cut: Cut) -> PyTree:
    """Returns the inverse of `apart`; leaves that ``differs`` but all shards share are repeated."""

    def leaf(own: bool, x: Value) -> Array:
        return jnp.stack(_each(cut, x)) if own else x

    return jax.tree.map(leaf, differs, tree)


def _each(cut: Cut, x: Value) -> Each:
    """A value as each shard of this device has it."""
    return x if isinstance(x, Each) else Each([x] * cut.here)


def _held(cut: Cut, values: Sequence[Value], differs: Sequence[bool]) -> list[Value]:
    """``values`` with those that ``differs`` as `Each`."""
    return [_each(cut, x) if own else x for x, own in zip(values, differs, strict=True)]


def _axes(eqn: JaxprEqn) -> bool:
    """Whether an operation is over the axis of the shards."""
    names = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return shards.AXIS in (names if isinstance(names, tuple | list) else (names,))


def _body(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[Any]]:
    """What is inside of an operation of `INSIDE`, and its constants."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if (body := eqn.params.get(name)) is not None:
            return _open(body)
    raise NotImplementedError(f"{eqn.primitive.name}: has no body that is known")


def _open(body: Any) -> tuple[Any, Sequence[Any]]:
    """A trace, closed or not, and its constants."""
    return getattr(body, "jaxpr", body), getattr(body, "consts", ())


def _collective(eqn: JaxprEqn) -> bool:
    """Whether an operation needs to know of other shards, or which one this is."""
    return _axes(eqn) or any(map(_meets, jaxprs_in_params(eqn.params)))


@functools.lru_cache(maxsize=4096)
def _meets(jaxpr: Any) -> bool:
    """`_collective` of any operation of a trace."""
    return any(map(_collective, jaxpr.eqns))


Flags = tuple[bool, ...]


@functools.lru_cache(maxsize=4096)
def _flags(jaxpr: Jaxpr, given: Flags) -> Flags:
    """Which results of ``jaxpr`` differ between shards, by which of its arguments do."""
    known = dict(zip(jaxpr.invars, given, strict=True))
    look = lambda x: not isinstance(x, Literal) and known.get(x, False)
    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, _flags_of(eqn, tuple(map(look, eqn.invars))), strict=True))
    return tuple(map(look, jaxpr.outvars))


def _flags_of(eqn: JaxprEqn, given: Flags) -> Flags:
    """`_flags` of one operation."""
    name, params = eqn.primitive.name, eqn.params
    if _axes(eqn):
        return (name == "axis_index",) * len(eqn.outvars)
    if name in INSIDE:
        return _flags(_body(eqn)[0], given)
    if name == "scan":
        return _of_scan(eqn, given)[1]
    if name == "cond" and not given[0]:
        found = [_flags(_open(branch)[0], given[1:]) for branch in params["branches"]]
        return tuple(map(any, zip(*found, strict=True)))
    return (any(given),) * len(eqn.outvars)


def _of_scan(eqn: JaxprEqn, given: Flags) -> tuple[Flags, Flags]:
    """Which of the carries of a loop differ between shards, and which of its results."""
    num_consts, num_carry = compat.loop_sizes(eqn.params)
    consts, carry, xs = given[:num_consts], given[num_consts : num_consts + num_carry], given[num_consts + num_carry :]
    while True:
        found = _flags(_open(eqn.params["jaxpr"])[0], (*consts, *carry, *xs))
        now = tuple(a or b for a, b in zip(carry, found[:num_carry], strict=True))
        if now == carry:
            return carry, (*carry, *found[num_carry:])
        carry = now


class _Here(NamedTuple):
    """What is known while a trace is evaluated: the cut, and where sums are exact a bool that is True, which no
    compiler knows."""

    cut: Cut
    sure: Array | None


def _evaluate(here: _Here, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Value]) -> list[Value]:
    """Computes ``jaxpr`` for the shards of this device.

    Between two meetings of the shards all that they share is one group of operations, and all that they do not another.
    """
    known: dict[Any, Value] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    own = {x: isinstance(value, Each) for x, value in known.items()}
    users: dict[Any, set[int]] = collections.defaultdict(set)
    for place, eqn in enumerate(jaxpr.eqns):
        for x in eqn.invars:
            if not isinstance(x, Literal):
                users[x].add(place)
    for x in jaxpr.outvars:
        if not isinstance(x, Literal):
            users[x].add(len(jaxpr.eqns))
    waiting: dict[bool, list[int]] = {False: [], True: []}
    touched: set[Any] = set()  # what comes of the operations of each shard, and is not computed yet

    def compute(apart: bool) -> None:
        places = waiting[apart]
        if not places:
            return
        eqns = [jaxpr.eqns[place] for place in places]
        made = [x for eqn in eqns for x in eqn.outvars]
        wanted = [x for x in made if users[x] - set(places)]
        needed = dict.fromkeys(x for eqn in eqns for x in eqn.invars if not isinstance(x, Literal))
        inputs = [x for x in needed if x not in set(made)]
        group = functools.partial(_group, eqns, inputs, wanted)
        rows = _rows(here.cut, [known[x] for x in inputs]) if apart else [[known[x] for x in inputs]]
        found = [_separately(here, group, row) for row in rows]
        for x, *values in zip(wanted, *found, strict=True):
            known[x] = Each(values) if own[x] else values[0]
        places.clear()

    def compute_all() -> None:
        compute(False)
        compute(True)
        touched.clear()

    look = lambda x: x.val if isinstance(x, Literal) else known[x]
    is_own = lambda x: not isinstance(x, Literal) and own[x]
    for place, eqn in enumerate(jaxpr.eqns):
        given = tuple(map(is_own, eqn.invars))
        own.update(zip(eqn.outvars, _flags_of(eqn, given), strict=True))
        if _collective(eqn):
            compute_all()
            known.update(zip(eqn.outvars, _meet(here, eqn, list(map(look, eqn.invars))), strict=True))
            continue
        apart = any(given) or any(x in touched for x in eqn.invars if not isinstance(x, Literal))
        waiting[apart].append(place)
        if apart:
            touched.update(eqn.outvars)
    compute_all()
    return list(map(look, jaxpr.outvars))


def _group(eqns: Sequence[JaxprEqn], inputs: Sequence[Any], wanted: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """What comes of operations of one shard, or of what all share."""
    known = dict(zip(inputs, values, strict=True))
    for eqn in eqns:
        given = [x.val if isinstance(x, Literal) else known[x] for x in eqn.invars]
        if eqn.primitive.name in INSIDE:
            body, consts = _body(eqn)
            found = _group(body.eqns, [*body.constvars, *body.invars], body.outvars, [*consts, *given])
        else:
            found = eqn.primitive.bind(*given, **eqn.primitive.get_bind_params(eqn.params))
        known.update(zip(eqn.outvars, found if isinstance(found, list | tuple) else [found], strict=True))
    return [x.val if isinstance(x, Literal) else known[x] for x in wanted]


def _separately(here: _Here, group: Callable[[Sequence[Any]], list[Any]], values: list[Any]) -> list[Any]:
    """``group(values)``, fused with nothing else where bits must not follow from how many shards a device has.

    XLA on CPU fuses through a barrier, but not into a branch that may not be taken.
    """
    if here.sure is None:
        return group(values)
    if not backend.is_cpu():
        return list(jax.lax.optimization_barrier(group(list(jax.lax.optimization_barrier(values)))))
    blank = lambda values: [_blank(x) for x in jax.eval_shape(group, values)]
    found: list[Any] = jax.lax.cond(here.sure, group, blank, values)
    return found


def _blank(like: Any) -> Array:
    """Zeros, of keys too."""
    if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), like.shape)
    return jnp.zeros(like.shape, like.dtype)


def _meet(here: _Here, eqn: JaxprEqn, given: list[Value]) -> Sequence[Value]:
    """An operation in which the shards meet."""
    name = eqn.primitive.name
    if _axes(eqn):
        return _join(here.cut, eqn, given)
    if name in INSIDE:
        return _evaluate(here, *_body(eqn), given)
    if name == "scan":
        return _scan(here, eqn, given)
    if name == "cond" and not isinstance(given[0], Each):
        return _cond(here, eqn, given)
    raise NotImplementedError(f"{name}: cannot hold what reduces over the shards of an agent")


def _rows(cut: Cut, given: Sequence[Value]) -> list[list[Any]]:
    """The arguments of each shard."""
    return [[_each(cut, x)[i] for x in given] for i in range(cut.here)]


def _scan(here: _Here, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
    """A loop, in each step of which the shards meet."""
    params = eqn.params
    (num_consts, num_carry), body = compat.loop_sizes(params), params["jaxpr"]
    carries, differs = _of_scan(eqn, tuple(isinstance(x, Each) for x in given))
    consts, start, xs = given[:num_consts], given[num_consts : num_consts + num_carry], given[num_consts + num_carry :]

    def step(carry: list[Value], x: list[Value]) -> tuple[list[Value], list[Value]]:
        found = _held(here.cut, _evaluate(here, *_open(body), [*consts, *carry, *x]), differs)
        return found[:num_carry], found[num_carry:]

    options = {"length": params["length"], "reverse": params["reverse"], "unroll": params["unroll"]}
    last, ys = jax.lax.scan(step, _held(here.cut, start, carries), xs, **options)
    return [*last, *ys]


def _cond(here: _Here, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
    """A choice that all shards make alike."""
    differs = _flags_of(eqn, tuple(isinstance(x, Each) for x in given))

    def taken(branch: Any) -> list[Value]:
        return _held(here.cut, _evaluate(here, *_open(branch), given[1:]), differs)

    branches = [functools.partial(taken, branch) for branch in eqn.params["branches"]]
    found: list[Value] = jax.lax.switch(given[0], branches)
    return found


def _join(cut: Cut, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
    """A collective over the shards."""
    name, params = eqn.primitive.name, eqn.params
    if name == "axis_index":
        first = jax.lax.axis_index(cut.axis) * cut.here if cut.axis else 0
        return [Each(jnp.int32(first + i) for i in range(cut.here))]
    if name not in COLLECTIVES or params.get("axis_index_groups") is not None or params.get("tiled"):
        raise NotImplementedError(f"{name}: is none of the collectives of purerl.shards")
    rows = _rows(cut, given)
    if name == "all_gather":
        if params["all_gather_dimension"]:
            raise NotImplementedError("all_gather: is along the first axis alone")
        return [_gathered(cut, [row[i] for row in rows]) for i in range(len(given))]
    return _packed(functools.partial(_reduced, cut, name), rows)


def _gathered(cut: Cut, parts: Sequence[Array]) -> Array:
    """``[S, ...]``: those of all shards, in their order."""
    here = jnp.stack(parts)
    return jax.lax.all_gather(here, cut.axis, tiled=True) if cut.axis else here


def _reduced(cut: Cut, name: str, parts: Sequence[Array]) -> Array:
    """The sum or the largest of the shards' parts."""
    two, over = (jnp.add, jax.lax.psum) if name == "psum" else (jnp.maximum, jax.lax.pmax)
    if cut.exact and name == "psum" and jnp.issubdtype(parts[0].dtype, jnp.inexact):
        return functools.reduce(two, list(_gathered(cut, parts)))
    here = functools.reduce(two, parts)
    return over(here, cut.axis) if cut.axis else here


def _packed(reduce: Callable[[Sequence[Array]], Array], rows: Sequence[Sequence[Array]]) -> list[Value]:
    """Reduces each column of ``rows``, all of one type in one collective."""
    found: list[Value] = [None] * len(rows[0])
    for dtype in dict.fromkeys(x.dtype for x in rows[0]):
        places = [i for i, x in enumerate(rows[0]) if x.dtype == dtype]
        sizes = [rows[0][i].size for i in places]
        joined = reduce([jnp.concatenate([row[i].reshape(-1) for i in places]) for row in rows])
        for i, part in zip(places, jnp.split(joined, list(_ends(sizes))), strict=True):
            found[i] = part.reshape(rows[0][i].shape)
    return found


def _ends(sizes: Sequence[int]) -> list[int]:
    """Where parts of these sizes end, but for the last."""
    ends, end = [], 0
    for size in sizes[:-1]:
        end += size
        ends.append(end)
    return ends
