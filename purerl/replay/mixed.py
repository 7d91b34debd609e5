"""A replay of two others: each element of a batch comes from one of the two."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import draw
from purerl.types import Array, Key, PyTree, Replay, Sample, Scalar, Transition


class MixedState(NamedTuple):
    """The states of both replays."""

    agent: PyTree
    demos: PyTree


def mixed(agent: Replay, demos: Replay, ratio: Scalar, num_envs: int) -> Replay:
    """Makes a replay that samples from ``agent`` and ``demos`` (Paine et al. 2019, arXiv 1909.01387, section 3).

    Trajectories are added to ``agent`` only. Weights correct for the priorities within each replay, and intentionally
    not for ``ratio``. Extras that ``demos`` lacks are zeros.

    Args:
        agent: A replay of batch size ``N`` whose weights are not yet `normalised`, such as `ring.uniform`,
            `ring.weighted` and `fixed` make: only the batch as a whole can be normalised.
        demos: Another such replay, of the same batch size.
        ratio: The probability with which each element of a batch comes from ``demos``, independently. May be traced.
        num_envs: The number of environments ``B`` of ``agent``. Those of ``demos`` are numbered from ``B`` on, so that
            a `Sample` says from which replay each element is, and its priority returns there.
    """

    def init(item: Transition) -> MixedState:
        return MixedState(agent.init(item), demos.init(item))

    def add(state: MixedState, trajectory: Transition) -> MixedState:
        return state._replace(agent=agent.add(state.agent, trajectory))

    def sample(state: MixedState, key: Key) -> Sample:
        key_agent, key_demos, key_ratio = jax.random.split(key, 3)
        own, given = agent.sample(state.agent, key_agent), demos.sample(state.demos, key_demos)
        chosen = draw.uniform(key_ratio, own.slot.shape) < ratio
        return Sample(
            _choose(chosen, _with_extras(given.items, own.items), own.items),
            jnp.where(chosen, given.slot, own.slot),
            jnp.where(chosen, num_envs + given.env, own.env),
            jnp.where(chosen, given.weight, own.weight),
        )

    def update(state: MixedState, sample: Sample, priority: Array) -> MixedState:
        of_demos = sample._replace(env=sample.env - num_envs)
        return MixedState(agent.update(state.agent, sample, priority), demos.update(state.demos, of_demos, priority))

    return Replay(init, add, sample, update, agent.rows)


def _with_extras(items: PyTree, like: PyTree) -> PyTree:
    """Adds zeros to ``items`` for extras that it lacks and ``like`` has; whoever recorded play was in the game."""
    lacking = [name for name in ("extras", "next_extras") if getattr(items, name, None) == ()]
    if isinstance(items, Transition):
        items = items._replace(present=jax.tree.map(jnp.ones_like, like.present))
    return items._replace(**{name: jax.tree.map(jnp.zeros_like, getattr(like, name)) for name in lacking})


def _choose(chosen: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Selects the items ``yes`` where ``chosen`` ``[N]``, otherwise ``no``.

    Those of a `Transition` are sequences ``[L, N]``, except for ``next_obs`` and ``extras``, which are ``[N]``.
    """

    def along(axis: int, yes: PyTree, no: PyTree) -> PyTree:
        def leaf(a: Array, b: Array) -> Array:
            return jnp.where(chosen.reshape(*[1] * axis, -1, *[1] * (a.ndim - axis - 1)), a, b)

        return jax.tree.map(leaf, yes, no)

    sequences = isinstance(yes, Transition)
    axes = {name: int(sequences and name not in ("next_obs", "extras")) for name in yes._fields}
    return type(yes)(**{name: along(axis, getattr(yes, name), getattr(no, name)) for name, axis in axes.items()})
