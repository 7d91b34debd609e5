"""A replay beside another one: each element of a batch comes from one of the two."""

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
    """``agent`` with ``demos`` beside it, to which nothing is added (Paine et al. 2019, arXiv 1909.01387, section 3).

    - ``agent, demos``: replays of the same batch size ``N`` whose weights are not yet `normalised`, as those of
      `ring.uniform`, `ring.weighted` and `fixed`, since only the batch as a whole can be.
    - ``ratio``: the probability with which each element of a batch comes from ``demos``, on its own. May be traced.
    - ``num_envs``: environments ``B`` of ``agent``. Those of ``demos`` are numbered from ``B`` on, so that a `Sample`
      tells where each draw is from, and its priority goes back there.

    Weights correct for the priorities within each replay, and not for ``ratio``, which is meant. Extras that ``demos``
    has not are zeros.
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
        theirs = sample._replace(env=sample.env - num_envs)
        return MixedState(agent.update(state.agent, sample, priority), demos.update(state.demos, theirs, priority))

    return Replay(init, add, sample, update, agent.rows)


def _with_extras(items: PyTree, like: PyTree) -> PyTree:
    """``items`` with zeros for extras that it has not, and ``like`` has."""
    lacking = [name for name in ("extras", "next_extras") if getattr(items, name, None) == ()]
    return items._replace(**{name: jax.tree.map(jnp.zeros_like, getattr(like, name)) for name in lacking})


def _choose(chosen: Array, yes: PyTree, no: PyTree) -> PyTree:
    """The items ``yes`` where ``chosen`` ``[N]``, otherwise ``no``. Those of a `Transition` are sequences ``[L, N]``,
    but for ``next_obs`` and ``extras``."""

    def along(axis: int, yes: PyTree, no: PyTree) -> PyTree:
        def leaf(a: Array, b: Array) -> Array:
            return jnp.where(chosen.reshape(*[1] * axis, -1, *[1] * (a.ndim - axis - 1)), a, b)

        return jax.tree.map(leaf, yes, no)

    sequences = isinstance(yes, Transition)
    axes = {name: int(sequences and name not in ("next_obs", "extras")) for name in yes._fields}
    return type(yes)(**{name: along(axis, getattr(yes, name), getattr(no, name)) for name, axis in axes.items()})
