"""Curricula, and those among them that keep a buffer of levels."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.curricula import buffer as buffers
from purerl.curricula.buffer import Buffer, Score
from purerl.formulas import levels as formulas
from purerl.formulas.levels import Played
from purerl.types import Array, Design, Env, Key, PyTree, Scalar


class Replayed(NamedTuple):
    """The ``buffer`` from which levels are chosen."""

    buffer: Buffer


class Refreshed(NamedTuple):
    """The ``buffer`` from which levels are chosen, and the next one.

    ``coming`` is the next buffer, which has been filled for ``age`` iterations (int32) so far.
    """

    buffer: Buffer
    coming: Buffer
    age: Array


class Plan(NamedTuple):
    """The levels of an iteration.

    ``levels`` ``[E, ...]`` are those to play in; ``place`` (int32 ``[E]``) is where each lies in the buffer, whose
    capacity ``C`` stands for new ones; ``chance`` ``[C]`` are the probabilities with which they were chosen;
    ``replayed`` (bool) is whether they were replayed.
    """

    levels: PyTree
    place: Array
    chance: Array
    replayed: Array


class Curriculum(NamedTuple):
    """The choice of levels, as pure functions of a state of its own, which has a ``buffer``. Keys are consumed.

    An iteration plays in the levels of ``plan(state, key)``, and ``update(state, plan, played)`` is given the results.
    If there is a ``probe``, the agent then plays in the levels ``probe(state, plan, key)`` ``[E, ...]`` without
    learning from it, and ``probed(state, levels, played)`` is given these results. With ``replays_alone`` the agent
    learns from plans that are ``replayed`` and from no other.
    """

    init: Callable[[Key], PyTree]
    plan: Callable[[PyTree, Key], Plan]
    update: Callable[[PyTree, Plan, Played], PyTree]
    probe: Callable[[PyTree, Plan, Key], PyTree] | None = None
    probed: Callable[[PyTree, PyTree, Played], PyTree] | None = None
    replays_alone: bool = False


def replay(
    env: Env,
    num_envs: int,
    *,
    capacity: int,
    share: Scalar,
    staleness: Scalar,
    temperature: Scalar,
    score: Score,
    robust: bool = False,
) -> Curriculum:
    """Makes prioritised level replay (Jiang et al. 2021, arXiv 2010.03934).

    All environments begin in levels chosen from the buffer (`buffer.chances`) with the probability ``share``, once the
    buffer is half full; otherwise they begin in new levels.

    Args:
        env: The environment.
        num_envs: The number of environments.
        capacity: The number of levels that the buffer holds.
        share: The probability of replayed levels.
        staleness: The weight of the age of levels, as in `buffer.chances`.
        temperature: The temperature of their ranks, as in `buffer.chances`.
        score: How levels are scored.
        robust: Whether this is the robust variant (Jiang et al. 2021, arXiv 2110.02439, algorithm 1), in which an agent
            learns from replayed levels alone.
    """

    def init(key: Key) -> Replayed:
        return Replayed(buffers.empty(env.levels(key, (capacity,))))

    def plan(state: Replayed, key: Key) -> Plan:
        key_whether, key_place, key_new = jax.random.split(key, 3)
        chance = buffers.chances(state.buffer, staleness, temperature)
        replayed = jax.random.bernoulli(key_whether, share) & (2 * state.buffer.size >= capacity)
        place = jnp.where(replayed, buffers.choose(chance, key_place, num_envs), capacity)
        return Plan(_from(state.buffer, place, env.levels(key_new, (num_envs,))), place, chance, replayed)

    def update(state: Replayed, plan: Plan, played: Played) -> Replayed:
        return Replayed(buffers.record(state.buffer, plan.levels, plan.place, played, score, plan.chance))

    return Curriculum(init, plan, update, replays_alone=robust)


def accel(env: Env, design: Design, num_envs: int, *, edits: int, **settings: Any) -> Curriculum:
    """Makes ACCEL, which is robust replay whose levels are also edited.

    Parker-Holder et al. 2022, arXiv 2203.01302, algorithm 1. Levels that were replayed are then changed ``edits``
    times, and scored. Where no level was replayed, new levels are scored: so all iterations take equally long, and the
    frames of a training do not depend on chance. The paper's mixture with a share ``p`` is that of a share
    ``2 p / (1 + p)`` here.

    Args:
        env: The environment.
        design: How levels are changed.
        num_envs: The number of environments.
        edits: The number of changes of a level.
        **settings: Those of `replay`, except for ``robust``.
    """
    curriculum = replay(env, num_envs, robust=True, **settings)
    new = jnp.full(num_envs, settings["capacity"], jnp.int32)

    def change(level: PyTree, key: Key) -> PyTree:
        return jax.lax.scan(lambda now, key: (design.change(key, now), None), level, jax.random.split(key, edits))[0]

    def probe(state: Replayed, plan: Plan, key: Key) -> PyTree:
        key_change, key_new = jax.random.split(key)
        changed = jax.vmap(change)(plan.levels, jax.random.split(key_change, num_envs))
        fresh = env.levels(key_new, (num_envs,))
        return jax.tree.map(lambda one, other: jnp.where(plan.replayed, one, other), changed, fresh)

    def probed(state: Replayed, levels: PyTree, played: Played) -> Replayed:
        chance = buffers.chances(state.buffer, settings["staleness"], settings["temperature"])
        return Replayed(buffers.record(state.buffer, levels, new, played, settings["score"], chance))

    return curriculum._replace(probe=probe, probed=probed)


def sfl(env: Env, num_envs: int, *, capacity: int, share: Scalar, refresh: int, limit: Scalar | None) -> Curriculum:
    """Makes sampling for learnability (Rutherford et al. 2024, arXiv 2408.15099, algorithm 1).

    A fraction of the environments begins in levels of the buffer, which have equal probabilities, the rest in new ones.
    Each iteration scores ``num_envs`` levels, and the most learnable ones of ``refresh`` iterations become the buffer.
    The paper scores them all at once; here all iterations take equally long.

    Args:
        env: The environment.
        num_envs: The number of environments.
        capacity: The number of levels that the buffer holds.
        share: The fraction of environments that begin in levels of the buffer.
        refresh: The number of iterations after which the buffer is replaced.
        limit: The return above which an episode is solved; None: levels are scored by the variance of returns.
    """
    new = jnp.full(num_envs, capacity, jnp.int32)

    def score(of: Played, best: Array) -> Array:
        learnable = formulas.learnability(of, limit)
        return jnp.where(learnable > 0, learnable, -jnp.inf)

    def init(key: Key) -> Refreshed:
        none = buffers.empty(env.levels(key, (capacity,)))
        return Refreshed(none, none, jnp.zeros((), jnp.int32))

    def plan(state: Refreshed, key: Key) -> Plan:
        key_place, key_new = jax.random.split(key)
        chance = jnp.where(state.buffer.occupied, 1.0, 0.0) / jnp.maximum(state.buffer.size, 1)
        there = state.buffer.size > 0
        chosen = (jnp.arange(num_envs) < jnp.round(share * num_envs)) & there
        place = jnp.where(chosen, buffers.choose(chance, key_place, num_envs), capacity)
        return Plan(_from(state.buffer, place, env.levels(key_new, (num_envs,))), place, chance, there)

    def probed(state: Refreshed, levels: PyTree, played: Played) -> Refreshed:
        coming = buffers.record(state.coming, levels, new, played, score, state.coming.score)
        due = state.age + 1 >= refresh
        switch = lambda one, other: jax.tree.map(lambda x, y: jnp.where(due, x, y), one, other)
        fresh = coming._replace(size=jnp.zeros((), jnp.int32), score=jnp.full(capacity, -jnp.inf))
        return Refreshed(switch(coming, state.buffer), switch(fresh, coming), jnp.where(due, 0, state.age + 1))

    return Curriculum(
        init, plan, lambda state, plan, played: state, lambda state, plan, key: env.levels(key, (num_envs,)), probed
    )


def _from(buffer: Buffer, place: Array, fresh: PyTree) -> PyTree:
    """Selects the levels of the buffer at ``place`` ``[E]``, and ``fresh`` ones where that is its capacity."""
    capacity = buffer.score.size
    stored = trees.take(buffer.levels, jnp.minimum(place, capacity - 1))
    return trees.restart(stored, fresh, place >= capacity)
