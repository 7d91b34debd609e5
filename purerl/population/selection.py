"""Selection among members during training, inside one program: population-based training and successive halving.

Both work with any `Trainer`. The fitness of a member that died is ``-inf``. ::

    train = jax.jit(population_based_training(make_trainer, 16, num_intervals=10, num_iterations=20,
                                              explore=perturb(learning_rate=(1e-5, 1e-1))))
    result = train(jax.random.key(0), population.members(configs, keys))
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

__all__ = [
    "Evolved",
    "Halved",
    "ancestry",
    "best_first",
    "counted",
    "exploited",
    "mean_return",
    "perturb",
    "population_based_training",
    "successive_halving",
    "survivors",
    "truncation",
]

Fitness = Callable[[Metrics], Array]
"""A function from the metrics ``[iterations]`` of one member to a scalar to be maximised.

Metrics of iterations that were not run are nan, or 0 if they are integers.
"""


class Evolved(NamedTuple):
    """The result of population-based training, for ``I`` intervals and ``P`` members.

    - ``state``: final training states ``[P]``.
    - ``given``: ``[I, P]``, the arguments that each member trained with in each interval.
    - ``fitness``: ``[I, P]``, the fitness of each member in each interval.
    - ``parent``: ``[I, P]`` int32, the member whose state each member took after the interval; its own index if it kept
      its state. `ancestry` follows these.
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
    """Returns ``train(key, members)``, to jit: after every interval the worst members continue from the best ones.

    Jaderberg et al. 2017 (arXiv 1711.09846, algorithm 1). A member that takes another's state takes all of it except
    the key, so that their trainings diverge. ``train`` consumes ``key``.

    Args:
        make_trainer: ``make_trainer(**given)`` makes the `Trainer` of a member.
        size: The number ``P`` of members.
        num_intervals: The number of intervals, each followed by a selection.
        num_iterations: The iterations of an interval.
        explore: ``explore(key, given)`` makes new arguments for a member that took another's state, from that one's
            (`perturb`).
        exploit: ``exploit(key, fitness [P]) -> parent [P]`` chooses whose state each member takes; None: `truncation`.
        fitness: The fitness, of the metrics of an interval; None: `mean_return`.
        devices: The devices; None: all.
    """
    exploit, fitness = exploit or truncation(), fitness or mean_return
    layout = layouts.layout(size, devices)
    advance = _advance(make_trainer, layout, num_iterations)

    def interval(carry: PyTree, key: Key) -> tuple[PyTree, PyTree]:
        given, state = carry
        filled = trees.fill((given, state), layout.size)
        state, metrics = trees.take(advance(*filled, num_iterations), np.arange(size))
        scores = _score(fitness, state, metrics)
        after, state, parent = exploited(key, given, state, scores, exploit=exploit, explore=explore)
        return (after, state), (given, scores, parent)

    def train(key: Key, members: membership.Members) -> Evolved:
        state = _init(make_trainer, members, layout)
        keys = jax.random.split(key, num_intervals)
        (_, state), (given, scores, parent) = jax.lax.scan(interval, (members.given, state), keys)
        return Evolved(state, given, scores, parent)

    return train


def exploited(
    key: Key,
    given: dict[str, PyTree],
    state: TrainState,
    scores: Array,
    *,
    exploit: Callable[[Key, Array], Array],
    explore: Callable[[Key, PyTree], PyTree],
) -> tuple[dict[str, PyTree], TrainState, Array]:
    """Computes a selection of population-based training among ``P`` members: the worst continue from the best.

    Consumes ``key``.

    Args:
        key: A key.
        given: The arguments of each member ``[P]``.
        state: Their training states ``[P]``.
        scores: Their fitness ``[P]`` (`counted`).
        exploit: As for `population_based_training`.
        explore: As there.

    Returns:
        The new arguments and states, and the ``parent`` ``[P]`` (int32) whose state each member took.
    """
    size = scores.shape[0]
    key_exploit, key_explore = jax.random.split(key)
    parent = exploit(key_exploit, scores)
    explored = jax.vmap(explore)(jax.random.split(key_explore, size), trees.take(given, parent))
    moved = parent != jnp.arange(size)
    after = jax.tree.map(lambda new, old: jax.vmap(jnp.where)(moved, new, old), explored, given)
    return after, trees.take(state, parent)._replace(key=state.key), parent


FRACTION = 0.2
"""The fraction of members that take the state of another, by default."""


def truncation(fraction: float = FRACTION) -> Callable[[Key, Array], Array]:
    """Makes truncation selection: each of the worst ``fraction`` of members takes the state of a random best one.

    The best and the worst are the same number of members, at least 1. ``exploit`` consumes its key.
    """

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
    """Makes a function that multiplies fields of the config by random factors, or redraws them.

    Args:
        factors: A field is multiplied by a random one of these.
        resample: The probability that it is redrawn instead.
        **ranges: The lowest and the highest value of each field. Values are clipped to this range, and redrawn from it:
            log-uniformly if it is positive, uniformly otherwise.

    Returns:
        ``explore(key, given)``, which consumes its key.
    """

    def explore(key: Key, given: dict[str, PyTree]) -> dict[str, PyTree]:
        changed = {}
        for key_field, (name, (low, high)) in zip(jax.random.split(key, len(ranges)), ranges.items(), strict=True):
            key_factor, key_whether, key_draw = jax.random.split(key_field, 3)
            value = getattr(given["config"], name) * jax.random.choice(key_factor, jnp.asarray(factors))
            if low > 0:
                drawn = jnp.exp(jax.random.uniform(key_draw, minval=math.log(low), maxval=math.log(high)))
            else:
                drawn = jax.random.uniform(key_draw, minval=low, maxval=high)
            redrawn = jnp.where(jax.random.bernoulli(key_whether, resample), drawn, value)
            changed[name] = jnp.clip(redrawn, low, high)
        return {**given, "config": dataclasses.replace(given["config"], **changed)}

    return explore


def ancestry(parent: Any, member: int) -> list[int]:
    """Returns the lineage of ``member``'s final state: the holder of its ancestor in each interval, then ``member``.

    ``parent`` ``[I, P]`` is that of `Evolved`. The result has ``I + 1`` indices, because the selection after the last
    interval counts too.
    """
    line = [member]
    for row in np.asarray(parent)[::-1]:
        line.append(int(row[line[-1]]))
    return line[::-1]


class Halved(NamedTuple):
    """The result of successive halving, with members ``[P]`` in order of rank, the best first.

    - ``state``: training states; those of members that were dropped are not meaningful.
    - ``given``: the arguments of each member.
    - ``member``: int32, the index of each member in the population that was passed in.
    - ``rungs``: the number of rungs that each member ran.
    - ``fitness``: the fitness of each member in its last rung.
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
    """Returns ``train(members)``, to jit: after each rung only the best ``1 / reduction`` of the members continue.

    Jamieson & Talwalkar 2016 (arXiv 1502.07943, figure 3), with cumulative budgets: at the end of rung ``r`` (from 0) a
    member has trained for ``num_iterations * reduction ** r`` iterations. Survivors are moved to the front, so that
    dropped members cost nothing except to complete a group. Survivors train exactly as they would alone.

    Args:
        make_trainer: ``make_trainer(**given)`` makes the `Trainer` of a member.
        size: The number ``P`` of members.
        num_rungs: The number of rungs.
        num_iterations: The iterations of the first rung.
        reduction: The factor by which members decrease and budgets increase per rung.
        fitness: The fitness, of the metrics of a rung; None: `mean_return`.
        devices: The devices; None: all.
    """
    fitness = fitness or mean_return
    totals = [0] + [num_iterations * reduction**r for r in range(num_rungs)]
    lengths = np.diff(totals).astype(np.int32)
    active = np.array([survivors(size, r, reduction) for r in range(num_rungs)], np.int32)
    layout = layouts.layout(size, devices)
    advance = _advance(make_trainer, layout, int(lengths.max()))
    count = len(layout.devices)
    share = layout.groups * layout.lanes
    rank = np.arange(layout.size)
    place = (rank % count) * share + rank // count  # index of each rank in [P]; ranks are dealt to the devices in turn
    rank_of_place = np.argsort(place)

    def rung(carry: PyTree, now: PyTree) -> tuple[PyTree, None]:
        length, survivors = now
        given, state, member, rungs, scores = carry
        groups = (survivors + count * layout.lanes - 1) // (count * layout.lanes)
        placed = trees.take((given, state), rank_of_place)
        state, metrics = trees.take(advance(*placed, length, groups=groups), place)
        ran = rank < survivors
        scores = jnp.where(ran, _score(fitness, state, metrics), scores)
        carry = given, state, member, rungs + ran, scores
        return trees.take(carry, best_first(scores, ran)), None

    def train(members: membership.Members) -> Halved:
        state = trees.fill(_init(make_trainer, members, layout), layout.size)
        given = trees.fill(members.given, layout.size)
        member, rungs = jnp.asarray(rank, jnp.int32), jnp.zeros(layout.size, jnp.int32)
        start = given, state, member, rungs, jnp.full(layout.size, -jnp.inf)
        (given, state, member, rungs, scores), _ = jax.lax.scan(rung, start, (lengths, active))
        return trees.take(Halved(state, given, member, rungs, scores), np.arange(size))

    return train


def survivors(size: int, rung: int, reduction: int = 2) -> int:
    """Returns how many of ``size`` members run in a rung of successive halving, from 0; at least 1."""
    return max(1, size // reduction**rung)


def best_first(scores: Any, ran: Any) -> Array:
    """Returns the order ``[P]`` of members by their ``scores`` ``[P]``, the best first, of equals the lower index.

    Those that ``ran`` (bool ``[P]``) come before the others.
    """
    rank = np.arange(len(scores))
    return jnp.lexsort((rank, jnp.where(ran, -scores, 0.0), ~ran))


def mean_return(metrics: Metrics) -> Array:
    """Computes the mean return of all episodes that ended in metrics ``[iterations]``; nan if none did."""
    episodes = jnp.nan_to_num(metrics["episodes"].astype(jnp.float32))
    total = jnp.sum(jnp.where(episodes > 0, metrics["episode_return"] * episodes, 0.0))
    return total / jnp.sum(episodes)


def _score(fitness: Fitness, state: TrainState, metrics: Metrics) -> Array:
    """Computes the fitness ``[P]`` of members, as it is `counted`."""
    return counted(jax.vmap(fitness)(metrics), state.alive)


def counted(scores: Any, alive: Any) -> Array:
    """Returns the fitness ``[P]`` that counts: -inf of members that are not ``alive`` or whose fitness is nan."""
    return jnp.where(alive & ~jnp.isnan(scores), scores, -jnp.inf)


def _init(make_trainer: Callable[..., Trainer], members: membership.Members, layout: layouts.Layout) -> TrainState:
    """Makes the initial training states ``[P]`` of members."""
    init = layouts.spread(lambda m, _: ((), make_trainer(**m.given).init(m.keys)), layout)
    return trees.take(init(trees.fill(members, layout.size), ())[1], np.arange(members.size))


def _advance(
    make_trainer: Callable[..., Trainer], layout: layouts.Layout, capacity: int
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Returns ``advance(given, state, length, groups=...)``, which runs ``length`` iterations, at most ``capacity``.

    Metrics are ``[P, capacity]``; from row ``length`` on they are nan, or 0 if they are integers.
    """

    def one(given: dict[str, Any], state: TrainState, length: Array) -> tuple[TrainState, Metrics]:
        state, metrics = loops.chunk(make_trainer(**given), capacity)(state, length)
        run = jnp.arange(capacity) < length
        return state, {name: jnp.where(run, m, _nothing(m)) for name, m in metrics.items()}

    return layouts.spread(one, layout)


def _nothing(x: Array) -> Any:
    """Returns the value of a metric of ``x``'s dtype in an iteration that was not run: nan, or 0 for integers."""
    return jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.zeros((), x.dtype)
