"""A first-in, first-out queue of trajectories, each of which is sampled a limited number of times."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.replay.storage import Packed, pack, unpack
from purerl.types import Array, Key, PyTree, Replay, Sample, Transition


class QueueState(NamedTuple):
    """The state of a `queue` with ``S`` slots.

    ``trajectories`` ``[S, T, B]``; ``uses`` ``[S, B]``, how often each was used; ``position``, the slot that is written
    next; ``filled``, the number of slots that hold data (all int32).
    """

    trajectories: PyTree
    uses: Array
    position: Array
    filled: Array


def queue(*, num_slots: int, num_steps: int, num_envs: int, batch_size: int, max_uses: int) -> Replay:
    """Makes a queue of the last ``num_slots`` trajectories ``[T, B]``, sampled in order of age.

    Trajectories are stored whole, with their extras; booleans of several elements are bit-packed. ``sample`` returns
    the ``N`` oldest that were used fewer than ``max_uses`` times, all different, as a `Transition` ``[T, N]``; if there
    are fewer, the rest of the batch has weight 0. Its key is not used. ``update`` counts one use of each sampled
    trajectory with positive weight. ``add`` raises `ValueError` for a trajectory of another shape.

    Args:
        num_slots: The number of trajectories ``[T, B]`` that the queue holds.
        num_steps: The number of steps ``T`` of a trajectory.
        num_envs: The number of environments ``B``; each environment's part counts as a trajectory of its own.
        batch_size: The number of trajectories ``N`` in a sample.
        max_uses: How often a trajectory is used before it is no longer sampled.

    Raises:
        ValueError: A number lies below 1, or a batch is larger than the queue.
    """
    if min(num_slots, num_steps, num_envs, batch_size, max_uses) < 1:
        raise ValueError("num_slots, num_steps, num_envs, batch_size and max_uses must be at least 1")
    if batch_size > num_slots * num_envs:
        raise ValueError(f"batch_size = {batch_size}: the queue holds {num_slots * num_envs} trajectories")

    def init(item: Transition) -> QueueState:
        def blank() -> PyTree:
            whole = lambda x: jnp.zeros((num_slots, num_steps, num_envs, *x.shape), x.dtype)
            return jax.tree.map(lambda x: pack(whole(x), 3), item)

        trajectories = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(blank))
        zero = jnp.zeros((), jnp.int32)
        return QueueState(trajectories, jnp.zeros((num_slots, num_envs), jnp.int32), zero, zero)

    def add(state: QueueState, trajectory: Transition) -> QueueState:
        if trajectory.reward.shape != (num_steps, num_envs):
            raise ValueError(f"a trajectory of {trajectory.reward.shape}: must be {(num_steps, num_envs)}")
        packed = jax.tree.map(lambda x: pack(x, 2), trajectory)
        write = lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, state.position, 0)
        return QueueState(
            jax.tree.map(write, state.trajectories, packed),
            write(state.uses, jnp.zeros(num_envs, jnp.int32)),
            (state.position + 1) % num_slots,
            jnp.minimum(state.filled + 1, num_slots),
        )

    def sample(state: QueueState, key: Key) -> Sample:
        age = jnp.arange(num_slots)
        slots = (state.position - state.filled + age) % num_slots  # oldest first
        ready = (age < state.filled)[:, None] & (state.uses[slots] < max_uses)  # [S, B]
        rank = jnp.cumsum(ready.reshape(-1))
        chosen = jnp.searchsorted(rank, jnp.arange(1, batch_size + 1))
        exists = chosen < rank.size
        chosen = jnp.where(exists, chosen, 0)
        slot, env = slots[chosen // num_envs], chosen % num_envs
        read = lambda x: x[slot[None], jnp.arange(num_steps)[:, None], env[None]]
        items = jax.tree.map(unpack, jax.tree.map(read, state.trajectories), is_leaf=lambda x: isinstance(x, Packed))
        return Sample(items, slot, env, exists.astype(jnp.float32))

    def update(state: QueueState, sample: Sample, priority: Array) -> QueueState:
        return state._replace(uses=state.uses.at[sample.slot, sample.env].add(sample.weight > 0))

    return Replay(init, add, sample, update, num_steps)
