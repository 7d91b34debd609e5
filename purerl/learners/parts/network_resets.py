"""Networks that begin anew every so many updates, while their replay stays (Nikishin et al. 2022, arXiv 2205.07802)."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.learners.parts import gradients
from purerl.types import Array, Key, Metrics, PyTree, Transition

RESETTING = zlib.crc32(b"resetting")
"""Separates the key of resets from that of the first networks."""


class Resets(NamedTuple):
    """When networks begin anew, and by what: each reset folds its ``number`` into the key of ``seed`` (uint32 ``[]``).

    ``number`` of resets so far and updates ``since`` the last one are int32 ``[]``.
    """

    seed: Array
    number: Array
    since: Array


def init(key: Key) -> Resets:
    """Returns what is known before the first update. Does not consume ``key``, but another that is folded from it."""
    zero = jnp.zeros((), jnp.int32)
    return Resets(jax.random.bits(jax.random.fold_in(key, RESETTING)), zero, zero)


def count(resets: Resets) -> Resets:
    """Counts an update."""
    return resets._replace(since=resets.since + 1)


def resetting(
    reset_every: int, init: Callable[[Key, PyTree], Any]
) -> Callable[[Any, Transition, Key], tuple[Any, Metrics]]:
    """Makes a `Learner.observe` that lets networks begin anew (`begun_anew`) where it is due, once an iteration.

    Args:
        reset_every: Number of updates from one time to the next.
        init: That of the learner.
    """

    def observe(state: Any, trajectory: Transition, key: Key) -> tuple[Any, Metrics]:
        def anew(state: Any) -> Any:
            key_networks = jax.random.fold_in(jax.random.key(state.resets.seed), state.resets.number)
            return begun_anew(state, init(key_networks, trees.take(trajectory.obs, 0)))

        return jax.lax.cond(state.resets.since >= reset_every, anew, lambda state: state, state), {}

    return observe


def begun_anew(state: Any, fresh: Any) -> Any:
    """Returns a state of the `off_policy_gradients` with all that learns of a ``fresh`` one.

    Step sizes go on as scheduled.
    """
    is_count = lambda x: isinstance(x, gradients.Descent)
    scheduled = lambda new, old: old if is_count(new) else new
    return jax.tree.map(scheduled, fresh, state, is_leaf=is_count)._replace(
        obs_moments=state.obs_moments,
        updates=state.updates,
        resets=state.resets._replace(number=state.resets.number + 1, since=jnp.zeros((), jnp.int32)),
    )
