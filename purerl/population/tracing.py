"""Analysis of the program of one shard of an agent, without computing it.

It tells which values differ between shards, where the shards meet, and what each can do by itself in between.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from purerl import compat, jaxprs, shards, trees
from purerl.types import PyTree

Flags = tuple[bool, ...]
"""For each of several values, whether it differs between shards."""


class Traced(NamedTuple):
    """The program of a shard, and the structure of its results with their shapes."""

    jaxpr: ClosedJaxpr
    shapes: PyTree


def trace(function: Callable[..., PyTree], count: int, *args: PyTree) -> Traced:
    """Traces ``function(*args)`` as one of ``count`` shards; ``args`` are arrays or shapes of one shard."""
    return Traced(*jax.make_jaxpr(function, axis_env=[(shards.AXIS, count)], return_shape=True)(*args))


def differing(traced: Traced, *args: PyTree) -> PyTree:
    """Returns which results differ between shards, as a tree of bools; ``args`` are trees of bools of the arguments.

    What comes from the number of the shard differs, until the shards meet in a collective.
    """
    leaves = results(jaxprs.opened(traced.jaxpr)[0], tuple(jax.tree.leaves(args)))
    return jax.tree.unflatten(jax.tree.structure(traced.shapes), leaves)


class Meeting(NamedTuple):
    """A collective over the shards.

    ``kind`` is the name of an operation of JAX, ``nbytes`` are the bytes that a shard brings to it, and ``times``
    counts how often it takes place in a run of the program.
    """

    kind: str
    nbytes: int
    times: int


def meetings(traced: Traced) -> list[Meeting]:
    """Returns the collectives of a program of one shard, including those of branches that may not be taken."""
    return _meetings(jaxprs.opened(traced.jaxpr)[0], 1)


def _meetings(jaxpr: Any, times: int) -> list[Meeting]:
    """Lists the collectives of a trace that is computed ``times`` times."""
    meetings = []
    for eqn in jaxpr.eqns:
        if is_collective(eqn) and eqn.primitive.name != "axis_index":
            meetings.append(Meeting(eqn.primitive.name, trees.nbytes([x.aval for x in eqn.invars]), times))
        for inner in jaxprs.inside(eqn):
            meetings += _meetings(inner, times * (eqn.params["length"] if eqn.primitive.name == "scan" else 1))
    return meetings


class Group(NamedTuple):
    """Operations in which no shards meet, and which compute ``outputs`` from ``inputs``.

    ``differs`` flags the outputs that differ between shards. The operations are computed for each shard if they are
    ``apart``, otherwise once.
    """

    eqns: list[JaxprEqn]
    inputs: list[Any]
    outputs: list[Any]
    differs: Flags
    apart: bool


def is_collective(eqn: JaxprEqn) -> bool:
    """Returns whether an operation is over the axis of the shards."""
    names = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return shards.AXIS in (names if isinstance(names, tuple | list) else (names,))


@functools.lru_cache(maxsize=1024)
def schedule(jaxpr: Any, given: Flags) -> list[Group | JaxprEqn]:
    """Orders the operations of ``jaxpr`` so that they can be computed in groups, between those in which shards meet.

    Between two operations in which shards meet there is at most one group of operations that all share and one of those
    that each shard has of its own.
    """
    own = _known(jaxpr, given)
    groups: list[Group | JaxprEqn] = []
    waiting: dict[bool, list[JaxprEqn]] = {False: [], True: []}
    not_yet: set[Any] = set()  # outputs of the waiting operations of each shard

    def close() -> None:
        groups.extend(_group(jaxpr, waiting[apart], own, apart) for apart in (False, True) if waiting[apart])
        not_yet.clear()
        waiting.update({False: [], True: []})

    for eqn in jaxpr.eqns:
        if _shards_meet(eqn):
            close()
            groups.append(eqn)
        else:
            apart = any(own.get(x) or x in not_yet for x in jaxprs.variables(eqn.invars))
            waiting[apart].append(eqn)
            not_yet.update(eqn.outvars if apart else ())
    close()
    return groups


def of_loop(eqn: JaxprEqn, given: Flags) -> tuple[Flags, Flags]:
    """Returns which carries of a `jax.lax.scan` differ between shards, and which of its results do."""
    num_consts, num_carry = compat.loop_sizes(eqn.params)
    consts, carry, xs = given[:num_consts], given[num_consts : num_consts + num_carry], given[num_consts + num_carry :]
    while True:
        outputs = results(jaxprs.opened(eqn.params["jaxpr"])[0], (*consts, *carry, *xs))
        now = tuple(a or b for a, b in zip(carry, outputs[:num_carry], strict=True))
        if now == carry:
            return carry, (*carry, *outputs[num_carry:])
        carry = now


def of_operation(eqn: JaxprEqn, given: Flags) -> Flags:
    """Returns which results of an operation differ between shards, given which of its arguments do."""
    name = eqn.primitive.name
    if is_collective(eqn):
        return (name == "axis_index",) * len(eqn.outvars)
    if inner := jaxprs.called(eqn):
        return results(inner[0], given)
    if name == "scan":
        return of_loop(eqn, given)[1]
    if name == "cond" and not given[0]:
        of_branches = [results(jaxprs.opened(branch)[0], given[1:]) for branch in eqn.params["branches"]]
        return tuple(map(any, zip(*of_branches, strict=True)))
    return (any(given),) * len(eqn.outvars)


@functools.lru_cache(maxsize=1024)
def results(jaxpr: Any, given: Flags) -> Flags:
    """Returns which results of ``jaxpr`` differ between shards, given which of its arguments do."""
    known = _known(jaxpr, given)
    return tuple(not isinstance(x, Literal) and known[x] for x in jaxpr.outvars)


def _known(jaxpr: Any, given: Flags) -> dict[Any, bool]:
    """Returns for every variable of ``jaxpr`` whether it differs between shards."""
    known = dict.fromkeys(jaxpr.constvars, False) | dict(zip(jaxpr.invars, given, strict=True))
    for eqn in jaxpr.eqns:
        flags = tuple(not isinstance(x, Literal) and known[x] for x in eqn.invars)
        known.update(zip(eqn.outvars, of_operation(eqn, flags), strict=True))
    return known


def _group(jaxpr: Any, eqns: list[JaxprEqn], own: dict[Any, bool], apart: bool) -> Group:
    """Makes a group of these operations of ``jaxpr``."""
    inside = set(map(id, eqns))
    elsewhere = {x for eqn in jaxpr.eqns if id(eqn) not in inside for x in jaxprs.variables(eqn.invars)}
    elsewhere.update(jaxprs.variables(jaxpr.outvars))
    made = dict.fromkeys(x for eqn in eqns for x in eqn.outvars)
    inputs = dict.fromkeys(x for eqn in eqns for x in jaxprs.variables(eqn.invars) if x not in made)
    outputs = [x for x in made if x in elsewhere]
    return Group(eqns, list(inputs), outputs, tuple(own[x] for x in outputs), apart)


def _shards_meet(eqn: JaxprEqn) -> bool:
    """Returns whether an operation needs to know of other shards, or which one this is."""
    return is_collective(eqn) or any(map(_anywhere, jaxprs.inside(eqn)))


@functools.lru_cache(maxsize=1024)
def _anywhere(jaxpr: Any) -> bool:
    """Returns whether shards meet in any operation of ``jaxpr``."""
    return any(map(_shards_meet, jaxpr.eqns))
