"""The program of one shard, run for all shards of an agent on one device or several.

What a shard computes is traced once, with the shards of the agent as an axis (`tracing`). Here that trace is evaluated
for the shards of a device, one after another, up to each of its collectives, which join the shards of the device and
then those of all devices. What does not differ between shards, such as parameters, is computed and held once a device.
So what an agent has only once cannot come to differ between its devices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from purerl import backend, compat, jaxprs
from purerl.errors import ConfigError
from purerl.population import tracing
from purerl.population.tracing import Traced
from purerl.types import Array, PyTree

COLLECTIVES = "psum", "pmax", "all_gather"


class Cut(NamedTuple):
    """How an agent is cut: into ``shards``, of which a device has ``here``, one after another.

    ``axis`` names the mesh axis over the devices of an agent (None: there is only one). With ``exact`` sums are added
    in the order of the shards, whatever the devices.
    """

    shards: int
    here: int
    axis: str | None = None
    exact: bool = False


@jax.tree_util.register_pytree_node_class
class Each(tuple[Any, ...]):
    """A value that differs between shards: a tuple of those of the shards of this device."""

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Returns the shards' values as the children of a tree."""
        return tuple(self), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Sequence[Any]) -> "Each":
        """Returns the inverse of `tree_flatten`."""
        return cls(children)


Value = Any
"""An array that all shards share, or an `Each`."""


def run(traced: Traced, cut: Cut, *args: PyTree) -> PyTree:
    """Computes a trace for the shards of this device.

    Leaves of ``args`` and of the results are `Each` where shards differ. If sums are exact, the first float among
    ``args`` must be finite, and an argument of the program.

    Raises:
        ConfigError: Shards meet in a way that is not supported.
    """
    leaves = jax.tree.leaves(args, is_leaf=lambda x: isinstance(x, Each))
    floats = (x for x in leaves if not isinstance(x, Each) and jnp.issubdtype(x.dtype, jnp.floating) and x.ndim == 0)
    sure = jnp.isfinite(next(floats)) if cut.exact else None
    results = _evaluate(_Here(cut, sure), *jaxprs.opened(traced.jaxpr), leaves)
    return jax.tree.unflatten(jax.tree.structure(traced.shapes), results)


def apart(tree: PyTree, differs: PyTree, cut: Cut) -> PyTree:
    """Returns ``tree``, whose leaves that ``differs`` lead with the shards of this device, with these as `Each`."""
    return jax.tree.map(lambda x, own: Each(x[i] for i in range(cut.here)) if own else x, tree, differs)


def together(tree: PyTree, differs: PyTree, cut: Cut) -> PyTree:
    """Returns the inverse of `apart`; leaves that ``differs`` but all shards share are repeated."""

    def leaf(own: bool, x: Value) -> Array:
        return jnp.stack(_each(cut, x)) if own else x

    return jax.tree.map(leaf, differs, tree)


def _each(cut: Cut, x: Value) -> Each:
    """Returns a value as each shard of this device has it."""
    return x if isinstance(x, Each) else Each([x] * cut.here)


def _held(cut: Cut, values: Sequence[Value], differs: Sequence[bool]) -> list[Value]:
    """Returns ``values`` with those that ``differs`` as `Each`."""
    return [_each(cut, x) if own else x for x, own in zip(values, differs, strict=True)]


class _Here(NamedTuple):
    """What is known while a trace is evaluated: the cut and, where sums are exact, ``sure``.

    ``sure`` is a bool that is True, which no compiler knows.
    """

    cut: Cut
    sure: Array | None


def _evaluate(here: _Here, jaxpr: Any, consts: Sequence[Any], args: Sequence[Value]) -> list[Value]:
    """Computes ``jaxpr`` for the shards of this device."""
    known: dict[Any, Value] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    for step in tracing.schedule(jaxpr, _flags(args)):
        if not isinstance(step, tracing.Group):
            known.update(zip(step.outvars, _meet(here, step, jaxprs.look(known, step.invars)), strict=True))
            continue
        given = jaxprs.look(known, step.inputs)
        rows = _rows(here.cut, given) if step.apart else [given]
        results = [_separately(here, functools.partial(_compute, step), row) for row in rows]
        for x, own, *values in zip(step.outputs, step.differs, *results, strict=True):
            known[x] = Each(values) if own else values[0]
    return jaxprs.look(known, jaxpr.outvars)


def _flags(values: Sequence[Value]) -> tracing.Flags:
    return tuple(isinstance(x, Each) for x in values)


def _compute(group: tracing.Group, values: Sequence[Any]) -> list[Any]:
    """Computes the operations of a group, and returns its outputs."""
    known = dict(zip(group.inputs, values, strict=True))
    for eqn in group.eqns:
        with compat.scope(eqn):
            results = jaxprs.compute(eqn, jaxprs.look(known, eqn.invars))
        known.update(zip(eqn.outvars, results, strict=True))
    return [known[x] for x in group.outputs]


def _separately(here: _Here, group: Callable[[Sequence[Any]], list[Any]], values: list[Any]) -> list[Any]:
    """Computes ``group(values)`` by itself where bits must not depend on the number of shards of a device.

    It is then fused with nothing else. XLA on CPU fuses through a barrier, but not into a branch that may not be taken.
    """
    if here.sure is None:
        return group(values)
    if not backend.is_cpu():
        return list(jax.lax.optimization_barrier(group(list(jax.lax.optimization_barrier(values)))))
    blank = lambda values: [_blank(x) for x in jax.eval_shape(group, values)]
    results: list[Any] = jax.lax.cond(here.sure, group, blank, values)
    return results


def _blank(like: Any) -> Array:
    """Returns zeros, also for keys."""
    if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), like.shape)
    return jnp.zeros(like.shape, like.dtype)


def _meet(here: _Here, eqn: JaxprEqn, given: list[Value]) -> Sequence[Value]:
    """Computes an operation in which the shards meet."""
    name = eqn.primitive.name
    if tracing.is_collective(eqn):
        return _join(here.cut, eqn, given)
    if inner := jaxprs.called(eqn):
        return _evaluate(here, *inner, given)
    if name == "scan":
        return _scan(here, eqn, given)
    if name == "cond" and not isinstance(given[0], Each):
        return _cond(here, eqn, given)
    raise ConfigError(f"shards: what reduces over those of an agent cannot be inside of a {name}")


def _rows(cut: Cut, given: Sequence[Value]) -> list[list[Any]]:
    """Lists the arguments of each shard."""
    return [[_each(cut, x)[i] for x in given] for i in range(cut.here)]


def _scan(here: _Here, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
    """Computes a loop in each step of which the shards meet."""
    params = eqn.params
    (num_consts, num_carry), body = compat.loop_sizes(params), params["jaxpr"]
    carries, differs = tracing.of_loop(eqn, _flags(given))
    consts, start, xs = given[:num_consts], given[num_consts : num_consts + num_carry], given[num_consts + num_carry :]

    def step(carry: list[Value], x: list[Value]) -> tuple[list[Value], list[Value]]:
        results = _held(here.cut, _evaluate(here, *jaxprs.opened(body), [*consts, *carry, *x]), differs)
        return results[:num_carry], results[num_carry:]

    options = {"length": params["length"], "reverse": params["reverse"], "unroll": params["unroll"]}
    with compat.scope(eqn):
        last, ys = jax.lax.scan(step, _held(here.cut, start, carries), xs, **options)
    return [*last, *ys]


def _cond(here: _Here, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
    """Computes a choice that all shards make alike."""
    differs = tracing.of_operation(eqn, _flags(given))

    def taken(branch: Any) -> list[Value]:
        return _held(here.cut, _evaluate(here, *jaxprs.opened(branch), given[1:]), differs)

    branches = [functools.partial(taken, branch) for branch in eqn.params["branches"]]
    results: list[Value] = jax.lax.switch(given[0], branches)
    return results


def _join(cut: Cut, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
    """Computes a collective over the shards."""
    name, params = eqn.primitive.name, eqn.params
    if name == "axis_index":
        first = jax.lax.axis_index(cut.axis) * cut.here if cut.axis else 0
        return [Each(jnp.int32(first + i) for i in range(cut.here))]
    if name not in COLLECTIVES or params.get("axis_index_groups") is not None or params.get("tiled"):
        raise ConfigError(f"shards: {name} over those of an agent is none of the functions of purerl.shards")
    rows = _rows(cut, given)
    if params.get("all_gather_dimension"):
        raise ConfigError("shards: an all_gather over shards must be along the first axis")
    joined = _gathered if name == "all_gather" else functools.partial(_reduced, name=name)
    return [joined(cut, [row[i] for row in rows]) for i in range(len(given))]


def _gathered(cut: Cut, parts: Sequence[Array]) -> Array:
    """Returns the parts ``[S, ...]`` of all shards, in their order."""
    here = jnp.stack(parts)
    return jax.lax.all_gather(here, cut.axis, tiled=True) if cut.axis else here


def _reduced(cut: Cut, parts: Sequence[Array], name: str) -> Array:
    """Returns the sum or the maximum of the shards' parts."""
    two, over = (jnp.add, jax.lax.psum) if name == "psum" else (jnp.maximum, jax.lax.pmax)
    if cut.exact and name == "psum" and jnp.issubdtype(parts[0].dtype, jnp.inexact):
        return functools.reduce(two, list(_gathered(cut, parts)))
    here = functools.reduce(two, parts)
    return over(here, cut.axis) if cut.axis else here
