"""Replay buffers: rings of the last rows of ``B`` environments, as `Replay` bundles."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.types import Array, Item, Key, Replay, Sample, Transition


class RingState(NamedTuple):
    """``items`` ``[rows, B]``; the row that is written next, and how many hold data (int32, never beyond ``rows``)."""

    items: Item
    position: Array
    filled: Array


def uniform(*, num_rows: int, num_envs: int, length: int, batch_size: int) -> Replay:
    """The last ``num_rows`` steps of each of ``B = num_envs`` environments, all sequences being equally likely.

    ``add`` writes a trajectory ``[T, B]`` over the oldest ``T`` rows, as one slice; ``T`` must divide ``num_rows``. An
    observation is stored once, in its own dtype.

    ``sample`` draws ``N = batch_size`` sequences of ``L = length`` steps, with replacement, from all that lie wholly in
    the data; none spans the newest and the oldest row. At least ``length`` rows must have been added. In a sequence,
    ``obs[i + 1]`` is the next observation of step ``i``, unless the episode ended there. After a termination nothing
    depends on it. After a truncation it is missing, so the weight is 0 if any step but the last was truncated, else 1.

    Raises `ValueError` for fewer rows than ``length``, 2^31 transitions or more, or a ``T`` that does not divide.
    """
    if num_rows < length:
        raise ValueError(f"num_rows = {num_rows}: must hold a sequence of length {length}")
    if num_rows * num_envs >= 2**31:
        raise ValueError(f"num_rows * num_envs = {num_rows * num_envs}: must lie below 2^31")

    def init(item: Transition) -> RingState:
        items = jax.tree.map(lambda x: jnp.zeros((num_rows, num_envs, *x.shape), x.dtype), _kept(item))
        return RingState(items, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def add(state: RingState, trajectory: Transition) -> RingState:
        num_steps = trajectory.reward.shape[0]
        if num_rows % num_steps:
            raise ValueError(f"num_rows = {num_rows}: must be a multiple of the trajectory's {num_steps} steps")
        items = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, state.position, axis=0),
            state.items,
            _kept(trajectory),
        )
        position = (state.position + num_steps) % num_rows
        return RingState(items, position, jnp.minimum(state.filled, num_rows - num_steps) + num_steps)

    def sample(state: RingState, key: Key) -> Sample:
        starts = state.filled - length + 1
        drawn = jax.random.randint(key, (batch_size,), 0, starts * num_envs)
        age, env = drawn // num_envs, drawn % num_envs
        oldest = state.position - state.filled
        slots = ((oldest + age)[None] + jnp.arange(length)[:, None]) % num_rows  # [L, N]
        items = jax.tree.map(lambda x: x[slots, env[None]], state.items)
        whole = ~jnp.any(items.truncated[:-1], axis=0)
        return Sample(items, slots[0], env, whole.astype(jnp.float32))

    return Replay(init, add, sample)


def _kept(transition: Transition) -> Item:
    return Item(*(getattr(transition, name) for name in Item._fields))
