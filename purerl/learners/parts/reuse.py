"""Learning from each trajectory more than once, by a queue of those before the newest."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import replay
from purerl.types import Array, Key, PyTree, Replay, Transition


@cfg.config
class ReuseSettings:
    """Settings of `make`."""

    max_uses: cfg.Count = 1
    """Number of iterations that learn from a trajectory. Above 1 each iteration learns off policy also from the
    max_uses - 1 trajectories before the newest, in minibatches that are max_uses times larger."""


class Reuse(NamedTuple):
    """The choice of the trajectories to learn from, as pure functions of a state: the newest, and maybe others.

    ``init(step)`` makes an empty state from the shapes of ``step() -> Transition [B, ...]``, which is not run.
    ``exchange(state, trajectory [T, B], key)`` returns the new state, a trajectory ``[T, N]`` whose first ``B`` columns
    are the newest one, and a mask of what there is to learn from (bool ``[T, N]``; ``()``: all of it).
    """

    init: Callable[[Callable[[], Transition]], PyTree]
    exchange: Callable[[PyTree, Transition, Key], tuple[PyTree, Transition, Array | tuple[()]]]


def once() -> Reuse:
    """Makes a `Reuse` that learns from each trajectory only when it is new."""
    return Reuse(lambda step: (), lambda state, trajectory, key: (state, trajectory, ()))


def several(max_uses: int, num_steps: int) -> Reuse:
    """Makes a `Reuse` that learns from each trajectory ``max_uses`` times, by a `replay.queue`.

    The first time is when it is new. The columns are those of ``max_uses`` trajectories. As long as the queue has
    fewer, the last columns repeat the newest trajectory, so that they are finite, and are masked.
    """

    def older(num_envs: int) -> Replay:
        uses = max_uses - 1
        sizes = {"num_slots": uses, "num_steps": num_steps, "num_envs": num_envs, "max_uses": uses}
        return replay.queue(**sizes, batch_size=uses * num_envs)

    def init(step: Callable[[], Transition]) -> PyTree:
        first = jax.eval_shape(step)
        item = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), first)
        return older(len(first.reward)).init(item)

    def exchange(state: PyTree, trajectory: Transition, key: Key) -> tuple[PyTree, Transition, Array]:
        queue = older(trajectory.reward.shape[1])
        sample = queue.sample(state, key)
        state = queue.add(queue.update(state, sample, sample.weight), trajectory)
        exists = sample.weight > 0

        def beside(new: Array, old: Array) -> Array:
            again = jnp.concatenate([new] * (max_uses - 1), axis=1)
            shape = (1, -1, *[1] * (new.ndim - 2))
            return jnp.concatenate([new, jnp.where(exists.reshape(shape), old, again)], axis=1)

        both = jax.tree.map(beside, trajectory, sample.items)
        present = jnp.concatenate([jnp.ones(trajectory.reward.shape[1], bool), exists])
        return state, both, jnp.broadcast_to(present, both.reward.shape)

    return Reuse(init, exchange)


def make(config: ReuseSettings, num_steps: int) -> Reuse:
    """Makes the `Reuse` that ``config`` describes."""
    return once() if config.max_uses == 1 else several(config.max_uses, num_steps)
