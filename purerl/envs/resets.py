"""How the environments of a fleet begin anew: by a new state for each at every step, from a pool, or few at a time.

``E`` environments. `Env.resets` chooses among them: ``every``, ``pool:N``, ``few`` or ``few:N``.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.errors import ConfigError
from purerl.types import Array, Env, Key, Metrics, PyTree

POOL_SEED = 0
"""The seed of the states of a pool, which are the same in every run."""
LARGEST = 2**20
"""The most states of a pool, and the most resets at a time."""
StateAndObs = tuple[PyTree, PyTree]
"""States of environments, and their observations, ``[E, ...]`` leading every leaf."""


class Resets(NamedTuple):
    """A way to begin episodes of ``E`` environments. ``first`` and ``noise`` consume their key.

    ``noise(key, shape)`` draws what the resets of ``shape`` many steps of all environments need, and ``renew`` takes
    one element of it: where ``last`` ``[E]`` is True, a new episode begins. ``metrics(last [T, E])`` are metrics of the
    resets, with the same names at every call.
    """

    first: Callable[[Key], StateAndObs]
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    renew: Callable[[PyTree, Array, StateAndObs], StateAndObs]  # (noise, last, now)
    metrics: Callable[[Array], Metrics]


def nothing(last: Array) -> Metrics:
    """Returns no metrics."""
    return {}


def parse(name: str, text: str) -> tuple[str, int | None]:
    """Reads the kind of resets and its number from ``text``, None where it has none.

    Raises:
        ConfigError: If the text is not ``every``, ``few``, ``few:N`` or ``pool:N`` with N from 1 to `LARGEST`. The
            error names the environment ``name``.
    """
    kind, colon, number = text.partition(":") if isinstance(text, str) else ("", "", "")
    counted = number.isascii() and number.isdecimal() and 1 <= int(number[:8]) <= LARGEST and len(number) < 8
    if (kind in ("every", "few") and not colon) or (kind in ("few", "pool") and counted):
        return kind, int(number) if number else None
    raise ConfigError(f"env = {name!r}: resets = {text!r}: must be every, pool:N, few or few:N, N from 1 to {LARGEST}")


def make_resets(env: Env, num_envs: int) -> Resets:
    """Makes the resets of ``num_envs`` copies of ``env``, as its ``resets`` says.

    Raises:
        ConfigError: As `parse` does.
    """
    kind, number = parse(env.name, env.resets)
    if kind == "pool":
        return pool(env, num_envs, number or 1)
    return every(env, num_envs) if kind == "every" else few(env, num_envs, min(number or num_envs, num_envs))


def every(env: Env, num_envs: int) -> Resets:
    """Computes a new state for every environment at every step, needed or not, which is cheap where beginning is."""
    return Resets(
        first=lambda key: jax.vmap(env.reset)(jax.random.split(key, num_envs)),
        noise=lambda key, shape: env.levels(key, (*shape, num_envs)),
        renew=lambda levels, last, now: renewed(env, last, jax.vmap(env.begin)(levels), now),
        metrics=nothing,
    )


def pool(env: Env, num_envs: int, size: int) -> Resets:
    """Begins every episode in a random one of ``size`` states.

    They are drawn once, from the seed `POOL_SEED`, so that they are the same in all runs and for all agents; if a
    parameter of the environment is traced, where the fleet is made.
    """
    with jax.ensure_compile_time_eval():
        states = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(POOL_SEED), size))

    def index(key: Key, shape: tuple[int, ...]) -> Array:
        return jax.random.randint(key, (*shape, num_envs), 0, size)

    return Resets(
        first=lambda key: trees.take(states, index(key, ())),
        noise=index,
        renew=lambda which, last, now: renewed(env, last, trees.take(states, which), now),
        metrics=nothing,
    )


def again(env: Env, levels: PyTree) -> Resets:
    """Begins every episode of an environment in its own of ``levels`` ``[E, ...]``, from the first one on."""
    first = jax.vmap(env.begin)(levels)
    return Resets(
        first=lambda key: first,
        noise=lambda key, shape: (),
        renew=lambda _, last, now: renewed(env, last, first, now),
        metrics=nothing,
    )


def few(env: Env, num_envs: int, at_a_time: int) -> Resets:
    """Computes a state only where an episode ended, ``at_a_time`` of them in a round, in as many rounds as it takes.

    No two environments share a state, and none waits. A step at which nothing ended has no round.

    The metric ``reset_rounds`` is the mean number of rounds of a step. On a GPU each round waits for the host.
    """

    def renew(key: Key, last: Array, now: StateAndObs) -> StateAndObs:
        place = jnp.cumsum(last, dtype=jnp.int32) - 1  # index among the episodes that ended

        def begin_some(i: Array, now: StateAndObs) -> StateAndObs:
            fresh = jax.vmap(env.begin)(env.levels(jax.random.fold_in(key, i), (at_a_time,)))
            turn = last & (place // at_a_time == i)
            return renewed(env, turn, trees.take(fresh, place % at_a_time), now)

        return jax.lax.fori_loop(0, rounds(jnp.sum(last, dtype=jnp.int32)), begin_some, now)

    def rounds(ended: Array) -> Array:
        return (ended + at_a_time - 1) // at_a_time

    return Resets(
        first=lambda key: jax.vmap(env.reset)(jax.random.split(key, num_envs)),
        noise=jax.random.split,
        renew=renew,
        metrics=lambda last: {"reset_rounds": jnp.mean(rounds(jnp.sum(last, axis=1, dtype=jnp.int32)))},
    )


def renewed(env: Env, last: Array, fresh: StateAndObs, now: StateAndObs) -> StateAndObs:
    """Returns ``fresh`` where ``last`` ``[E]``, with what its episode keeps of the one before, else ``now``."""
    if env.keep:
        fresh = jax.vmap(env.keep)(now[0], fresh[0]), fresh[1]
    return trees.restart(now, fresh, last)
