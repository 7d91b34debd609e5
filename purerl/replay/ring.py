"""Ring buffers of the last rows of ``B`` environments, sampled uniformly or by priority, as `Replay` bundles.

A row is one step of all ``B`` environments.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import counters, shards
from purerl.counters import Count
from purerl.formulas.schedules import anneal, progress
from purerl.replay import storage, sums
from purerl.replay.priorities import finite, importance, normalised, powered, stratified
from purerl.replay.views import View
from purerl.types import Array, Key, PyTree, Replay, Sample, Scalar, Transition

CUT_ROWS = 32
"""The default number of rows for which the next observation of one truncated step is stored."""


class RingState(NamedTuple):
    """The state of a ring of rows.

    ``items`` ``[rows, B]``; ``position``, the row that is written next; ``filled``, the number of rows that hold data,
    at most ``rows`` (both int32).
    """

    items: Transition
    position: Array
    filled: Array


class PrioritisedState(NamedTuple):
    """The state of a prioritised ring.

    ``ring`` is the ring's own; ``sums`` are those of ``priority^alpha``; ``largest`` is the largest priority so far,
    and ``updates`` the number of updates.
    """

    ring: RingState
    sums: sums.Sums
    largest: Array
    updates: Count


class Ring(NamedTuple):
    """The functions and sizes that both kinds of ring share.

    Rows form blocks of ``stride`` rows, and a sample begins at the start of a block. The age of a block is its distance
    from the oldest block in the data. Blocks of age ``first`` to ``first + starts(state) - 1`` begin a sample that lies
    wholly in the data, with the frames that it needs before it. The other ``span`` blocks do not: ``first`` at the old
    end of the data, the rest at the new end.
    """

    init: Callable[[Transition], RingState]
    add: Callable[[RingState, Transition], RingState]
    first: int
    span: int
    num_blocks: int
    starts: Callable[[RingState], Array]
    row: Callable[[RingState, Array], Array]  # (state, age) -> first row of the block
    read: Callable[[RingState, Array, Array], tuple[PyTree, Array]]  # (state, row, env) -> (items, usable)


def least_rows(length: int, stride: int = 1, num_frames: int = 1) -> int:
    """Computes the number of rows that a ring must hold for one sample.

    A sample is ``length`` rows, the first a multiple of ``stride``, and the rows before it that a stack of
    ``num_frames`` frames needs.
    """
    blocks = -(-(num_frames - 1) // stride) - (-length // stride)
    return blocks * stride


def most_frames(frames: PyTree) -> int:
    """Returns the largest number of stacked frames of any leaf of an observation."""
    return max(jax.tree.leaves(frames), default=1)


def _ring(num_rows: int, num_envs: int, batch_size: int, view: View, frames: PyTree, next_obs: int) -> Ring:
    """Makes the `Ring` of `uniform` and `weighted`, with their arguments. Raises `ValueError` for sizes that misfit."""
    length, stride, num_frames = view.length, view.stride, most_frames(frames)
    counts = {"num_rows": num_rows, "num_envs": num_envs, "batch_size": batch_size, "num_frames": num_frames}
    for name, number in counts.items():
        if number < 1:
            raise ValueError(f"{name} = {number}: must be at least 1")
    first, reach = -(-(num_frames - 1) // stride), -(-length // stride) - 1
    if num_rows % stride:
        raise ValueError(f"num_rows = {num_rows}: must be a multiple of the stride {stride}")
    if num_rows < least_rows(length, stride, num_frames):
        raise ValueError(f"num_rows = {num_rows}: must hold a sample of {least_rows(length, stride, num_frames)} rows")
    if num_rows * num_envs >= 2**31:
        raise ValueError(f"num_rows * num_envs = {num_rows * num_envs}: must be below 2^31")

    def init(item: Transition) -> RingState:
        zero = jnp.zeros((), jnp.int32)
        return RingState(storage.empty(item, num_rows, num_envs, frames, stride, next_obs), zero, zero)

    def add(state: RingState, trajectory: Transition) -> RingState:
        num_steps = trajectory.reward.shape[0]
        if num_rows % num_steps or num_steps % stride:
            raise ValueError(
                f"a trajectory of {num_steps} steps: must divide num_rows = {num_rows} and be a multiple of {stride}"
            )

        items = storage.write(state.items, state.position, storage.kept(trajectory, frames, stride))
        position = (state.position + num_steps) % num_rows
        return RingState(items, position, jnp.minimum(state.filled, num_rows - num_steps) + num_steps)

    def starts(state: RingState) -> Array:
        return jnp.maximum(state.filled // stride - reach - first, 0)

    def row(state: RingState, age: Array) -> Array:
        return (state.position - state.filled + age * stride) % num_rows

    def read(state: RingState, row: Array, env: Array) -> tuple[PyTree, Array]:
        return view.read(state.items, row, env, frames)

    return Ring(init, add, first, first + reach, num_rows // stride, starts, row, read)


def uniform(
    *, num_rows: int, num_envs: int, batch_size: int, view: View, num_frames: PyTree = 1, next_obs: int = CUT_ROWS
) -> Replay:
    """Makes a ring buffer of the last ``num_rows`` steps of each environment, sampled uniformly.

    ``add`` overwrites the oldest ``T`` rows with a trajectory ``[T, B]``, as one slice; ``T`` must divide ``num_rows``
    and be a multiple of the view's stride, otherwise it raises `ValueError`. Observations are stored once, in their own
    dtype, booleans bit-packed.

    ``sample`` draws ``N`` starting rows with replacement, from all whose samples lie wholly in the data: none wraps
    from the newest to the oldest row, and none crosses the end of an episode further than its view says. It consumes
    its key. Weights are 1, or 0 for samples that the view calls unusable, and for all while the data is too short for a
    sample. The cost of a sample does not depend on ``num_rows``.

    Args:
        num_rows: The number of rows that it holds, a multiple of the view's stride.
        num_envs: The number of environments ``B``.
        batch_size: The number of draws ``N`` in a sample.
        view: What a sample is (`transitions`, `sequences`).
        num_frames: The number of frames stacked along the last axis of an observation, the newest last; only the newest
            is stored. A number, or a tree of them, one for each leaf of an observation.
        next_obs: Which next observations to store, so that a view can bootstrap from those of truncated steps: 0 none,
            1 all, otherwise that of one truncated step in this many rows.

    Raises:
        ValueError: Sizes do not fit together.
    """
    ring = _ring(num_rows, num_envs, batch_size, view, num_frames, next_obs)

    def sample(state: RingState, key: Key) -> Sample:
        count = ring.starts(state)
        drawn = jax.random.randint(key, (batch_size,), 0, jnp.maximum(count * num_envs, 1))
        env = drawn % num_envs
        row = ring.row(state, ring.first + drawn // num_envs)
        items, usable = ring.read(state, row, env)
        return Sample(items, row, env, jnp.where(usable & (count > 0), 1.0, 0.0))

    return Replay(
        ring.init,
        ring.add,
        sample,
        lambda state, sample, priority: state,
        least_rows(view.length, view.stride, most_frames(num_frames)),
    )


def weighted(
    *,
    num_rows: int,
    num_envs: int,
    batch_size: int,
    view: View,
    alpha: Scalar,
    beta: Scalar = 0.4,
    beta_end: Scalar = 1.0,
    num_updates: Scalar = 1,
    num_frames: PyTree = 1,
    next_obs: int = CUT_ROWS,
    initial: Callable[[PyTree], Array] | None = None,
) -> Replay:
    """Makes a ring as `uniform` does, where a sample of priority ``p`` has the probability ``p^alpha / sum p^alpha``.

    Proportional prioritisation (Schaul et al. 2016, arXiv 1511.05952, eq. 1), stratified over the batch. Weights are
    ``(M P)^-beta``, where ``M`` is the number of samples in the data and ``P`` the probability. Floats may be traced.

    ``update(state, sample, priority)`` sets the priorities ``[N]`` of a batch. Of a sample drawn twice the larger
    priority counts; a non-finite priority counts as 0; draws whose ``env`` is none of the ring's are left out. Samples
    that wrap from the newest to the oldest row, or that are unusable when they are added, are never drawn; one that
    becomes unusable later has weight 0, and is drawn once.

    Args:
        num_rows: As for `uniform`.
        num_envs: As for `uniform`.
        batch_size: As for `uniform`.
        view: As for `uniform`.
        alpha: The exponent of the priorities, in [0, 1].
        beta: The exponent of the weights at the start.
        beta_end: The exponent of the weights after ``num_updates`` updates; linear in between.
        num_updates: The number of updates over which the exponent of the weights is annealed.
        num_frames: As for `uniform`.
        next_obs: As for `uniform`.
        initial: ``initial(items) -> [M]`` gives the priorities of the ``M`` new samples (Horgan et al. 2018, arXiv
            1803.00933, Algorithm 1); None: the largest priority so far, 1 before any update.

    Raises:
        ValueError: Sizes do not fit together.
    """
    ring = _ring(num_rows, num_envs, batch_size, view, num_frames, next_obs)
    size, reach = ring.num_blocks * num_envs, ring.span - ring.first

    def index(row: Array, env: Array) -> Array:
        """Computes the index of a sample in the sums: that of the last block that it reaches."""
        return (row // view.stride + reach) % ring.num_blocks * num_envs + env

    def init(item: Transition) -> PrioritisedState:
        return PrioritisedState(ring.init(item), sums.init(size), jnp.ones(()), counters.of())

    def add(state: PrioritisedState, trajectory: Transition) -> PrioritisedState:
        blocks = trajectory.reward.shape[0] // view.stride
        stored = ring.add(state.ring, trajectory)
        block = jnp.repeat(state.ring.position // view.stride + jnp.arange(blocks), num_envs)  # last of a new sample
        env = jnp.tile(jnp.arange(num_envs), blocks)
        items, usable = ring.read(stored, (block - reach) % ring.num_blocks * view.stride, env)
        priority = jnp.full(block.shape, state.largest) if initial is None else initial(items)
        oldest = ring.row(stored, jnp.arange(ring.span + 1)) // view.stride
        complete = (block - oldest[0]) % ring.num_blocks >= ring.span
        overwritten = jnp.repeat(oldest[:-1] * num_envs, num_envs) + jnp.tile(jnp.arange(num_envs), ring.span)
        kept = sums.put(
            state.sums,
            jnp.concatenate([block * num_envs + env, overwritten]),
            jnp.concatenate([jnp.where(usable & complete, powered(priority, alpha), 0.0), jnp.zeros(overwritten.size)]),
        )
        return state._replace(ring=stored, sums=kept)

    def sample(state: PrioritisedState, key: Key) -> Sample:
        place = stratified(state.sums, key, batch_size)
        env = place % num_envs
        row = (place // num_envs - reach) % ring.num_blocks * view.stride
        items, usable = ring.read(state.ring, row, env)
        exponent = anneal(beta, beta_end, progress(state.updates, num_updates))
        weight = importance(state.sums, place, ring.starts(state.ring) * num_envs, exponent)
        return Sample(items, row, env, jnp.where(usable & (sums.total(state.sums) > 0), weight, 0.0))

    def update(state: PrioritisedState, sample: Sample, priority: Array) -> PrioritisedState:
        own = (sample.env >= 0) & (sample.env < num_envs)
        counted = own & (sample.weight > 0)
        return state._replace(
            sums=sums.put(
                state.sums,
                jnp.where(own, index(sample.slot, sample.env), sums.NOWHERE),
                jnp.where(counted, powered(priority, alpha), 0.0),
            ),
            largest=jnp.maximum(state.largest, shards.largest(jnp.max(jnp.where(counted, finite(priority), 0.0)))),
            updates=counters.increment(state.updates),
        )

    return Replay(init, add, sample, update, least_rows(view.length, view.stride, most_frames(num_frames)))


def prioritised(**ring: Any) -> Replay:
    """Makes a ring as `weighted` does, with its arguments, whose weights are `normalised`."""
    return normalised(weighted(**ring))
