"""Choosing among members while they train, inside one program: population-based training and successive halving.

Both work on any `Trainer`: a member's state is a pytree, and so is what it was given. A member that died has the worst
fitness. ::

    train = jax.jit(population_based_training(make_trainer, 16, num_intervals=10, num_iterations=20,
                                              explore=perturb(learning_rate=(1e-5, 1e-1))))
    found = train(jax.random.key(0), population.members(configs, keys))
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import loops, trees
from purerl.population import layouts, membership
from purerl.types import Array, Key, Metrics, PyTree, Trainer, TrainState

Fitness = Callable[[Metrics], Array]
"""Of the metrics ``[iterations]`` of one member, a scalar to be maximised; rows that were not run are nan."""


class Evolved(NamedTuple):
    """What population-based training returns. ``I`` intervals, ``P`` members.

    ``given[i, p]`` is what member ``p`` trained with in interval ``i``, ``fitness[i, p]`` what it came to, and
    ``parent[i, p]`` (int32) the member whose state it then took: ``p`` itself if it was left alone. `ancestry` reads
    lineages off ``parent``.
    """

    state: TrainState
    given: dict[str, PyTree]
    fitness: Array
    parent: Array


def population_based_training(
    make_trainer: Callable[..., Trainer],
    size: int,
    *,
    num_intervals: int,
    num_iterations: int,
    explore: Callable[[Key, PyTree], PyTree],
    exploit: Callable[[Key, Array], Array] | None = None,
    fitness: Fitness | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Callable[[Key, membership.Members], Evolved]:
    """``train(key, members)``, to jit: ``size`` members train; at intervals the worst go on from copies of the best.

    Jaderberg et al. 2017 (arXiv 1711.09846, algorithm 1). After every ``num_iterations`` iterations
    ``exploit(key, fitness [P]) -> parent [P]`` (default `truncation`) says whose state each member takes, bit for bit,
    all but the key, so that twins part; those that took another's get ``explore(key, given)`` of what that one was
    given (`perturb`). ``fitness`` defaults to `mean_return` over the interval. Consumes ``key``.
    """
    exploit, fitness = exploit or truncation(), fitness or mean_return
    layout = layouts.layout(size, devices)
    advance = _advance(make_trainer, layout, num_iterations)

    def interval(carry, key):
        given, state = carry
        key_exploit, key_explore = jax.random.split(key)
        filled = trees.fill((given, state), layout.size)
        state, metrics = trees.take(advance(*filled, num_iterations), np.arange(size))
        scores = _score(fitness, state, metrics)
        parent = exploit(key_exploit, scores)
        explored = jax.vmap(explore)(jax.random.split(key_explore, size), trees.take(given, parent))
        moved = parent != jnp.arange(size)
        after = jax.tree.map(lambda new, old: jax.vmap(jnp.where)(moved, new, old), explored, given)
        return (after, trees.take(state, parent)._replace(key=state.key)), (given, scores, parent)

    def train(key: Key, members: membership.Members) -> Evolved:
        state = _init(make_trainer, members, layout)
        keys = jax.random.split(key, num_intervals)
        (_, state), (given, scores, parent) = jax.lax.scan(interval, (members.given, state), keys)
        return Evolved(state, given, scores, parent)

    return train


def truncation(fraction: float = 0.2) -> Callable[[Key, Array], Array]:
    """The worst ``fraction`` of the members, at least one, take the state of one of as many of the best, at random."""

    def exploit(key: Key, scores: Array) -> Array:
        size = scores.shape[0]
        count = max(1, math.floor(fraction * size))
        order = jnp.argsort(scores)
        chosen = jax.random.randint(key, (count,), size - count, size)
        return jnp.arange(size).at[order[:count]].set(order[chosen])

    return exploit


def perturb(
    *, factors: tuple[float, float] = (0.8, 1.25), resample: float = 0.25, **ranges: tuple[float, float]
) -> Callable[[Key, PyTree], PyTree]:
    """Multiplies fields of the config by one of ``factors``, or draws them anew with the chance ``resample``.

    ``ranges`` name the fields, with the lowest and the highest value that they may take, both above 0; a new draw is
    uniform in the logarithm.
    """

    def explore(key: Key, given: dict[str, PyTree]) -> dict[str, PyTree]:
        changed = {}
        for key_field, (name, (low, high)) in zip(jax.random.split(key, len(ranges)), ranges.items(), strict=True):
            key_factor, key_whether, key_draw = jax.random.split(key_field, 3)
            value = getattr(given["config"], name) * jax.random.choice(key_factor, jnp.asarray(factors))
            drawn = jnp.exp(jax.random.uniform(key_draw, minval=math.log(low), maxval=math.log(high)))
            redrawn = jnp.where(jax.random.bernoulli(key_whether, resample), drawn, value)
            changed[name] = jnp.clip(redrawn, low, high)
        return {**given, "config": dataclasses.replace(given["config"], **changed)}

    return explore


def ancestry(parent: Any, member: int) -> list[int]:
    """Which member's place each state on the way to ``member``'s last one was in, interval by interval.

    ``parent`` is that of `Evolved`. The last interval's own choice counts: it made the state that was returned.
    """
    line = [member]
    for row in np.asarray(parent)[::-1]:
        line.append(int(row[line[-1]]))
    return line[::-1]


class Halved(NamedTuple):
    """What successive halving returns, members in order of rank, the survivor first.

    ``member`` ``[P]`` (int32) is the place that each had among those given, ``rungs`` ``[P]`` how many rungs it ran,
    and ``fitness`` ``[P]`` that of its last one. The states of members that were dropped are of no use.
    """

    state: TrainState
    given: dict[str, PyTree]
    member: Array
    rungs: Array
    fitness: Array


def successive_halving(
    make_trainer: Callable[..., Trainer],
    size: int,
    *,
    num_rungs: int,
    num_iterations: int,
    reduction: int = 2,
    fitness: Fitness | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Callable[[membership.Members], Halved]:
    """``train(members)``, to jit: after each rung only the best ``1 / reduction`` of the members go on.

    Jamieson & Talwalkar 2016 (arXiv 1502.07943, figure 3), by total budget: at the end of rung ``r`` a member has
    trained for ``num_iterations * reduction ** r`` iterations. Survivors are moved together to the front, so that those
    that were dropped cost nothing but the rest of a group; they train on as they would have alone, bit for bit.
    ``fitness`` defaults to `mean_return` over the rung.
    """
    fitness = fitness or mean_return
    totals = [0] + [num_iterations * reduction**r for r in range(num_rungs)]
    lengths = np.diff(totals).astype(np.int32)
    active = np.array([max(1, size // reduction**r) for r in range(num_rungs)], np.int32)
    layout = layouts.layout(size, devices)
    advance = _advance(make_trainer, layout, int(lengths.max()))
    count = len(layout.devices)
    share = layout.groups * layout.lanes
    rank = np.arange(layout.size)
    place = (rank % count) * share + rank // count  # of each rank: dealt out to the devices in turn
    rank_of_place = np.argsort(place)

    def rung(carry, now):
        length, survivors = now
        given, state, member, rungs, scores = carry
        groups = (survivors + count * layout.lanes - 1) // (count * layout.lanes)
        laid = trees.take((given, state), rank_of_place)
        state, metrics = trees.take(advance(*laid, length, groups=groups), place)
        ran = rank < survivors
        scores = jnp.where(ran, _score(fitness, state, metrics), scores)
        order = jnp.lexsort((rank, jnp.where(ran, -scores, 0.0), ~ran))  # the best of those that ran in front
        carry = given, state, member, rungs + ran, scores
        return trees.take(carry, order), None

    def train(members: membership.Members) -> Halved:
        state = trees.fill(_init(make_trainer, members, layout), layout.size)
        given = trees.fill(members.given, layout.size)
        start = given, state, jnp.asarray(rank, jnp.int32), jnp.zeros(layout.size, jnp.int32)
        start = *start, jnp.full(layout.size, -jnp.inf)
        (given, state, member, rungs, scores), _ = jax.lax.scan(rung, start, (lengths, active))
        return trees.take(Halved(state, given, member, rungs, scores), np.arange(size))

    return train


def mean_return(metrics: Metrics) -> Array:
    """Mean return of the episodes that ended; nan if none did."""
    episodes = jnp.nan_to_num(metrics["episodes"].astype(jnp.float32))
    total = jnp.sum(jnp.where(episodes > 0, metrics["episode_return"] * episodes, 0.0))
    return total / jnp.sum(episodes)


def _score(fitness: Fitness, state: TrainState, metrics: Metrics) -> Array:
    scores = jax.vmap(fitness)(metrics)
    return jnp.where(state.alive & ~jnp.isnan(scores), scores, -jnp.inf)


def _init(make_trainer: Callable[..., Trainer], members: membership.Members, layout: layouts.Layout) -> TrainState:
    init = layouts.spread(lambda m, _: ((), make_trainer(**m.given).init(m.keys)), layout)
    return trees.take(init(trees.fill(members, layout.size), ())[1], np.arange(members.size))


def _advance(
    make_trainer: Callable[..., Trainer], layout: layouts.Layout, capacity: int
) -> Callable[..., tuple[TrainState, Metrics]]:
    """``advance(given, state, length, groups=...)``: ``length`` iterations; metrics of rows not run are nan, or 0."""

    def one(given, state, length):
        state, metrics = loops.chunk(make_trainer(**given), capacity)(state, length)
        run = jnp.arange(capacity) < length
        return state, {name: jnp.where(run, m, _nothing(m)) for name, m in metrics.items()}

    return layouts.spread(one, layout)


def _nothing(x: Array) -> Any:
    return jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.zeros((), x.dtype)
