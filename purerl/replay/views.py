"""Views: what a sample from a ring buffer is, n-step transitions or sequences."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.replay import storage
from purerl.types import Array, Outcome, PyTree, Recorded, Scalar, Transition


class View(NamedTuple):
    """How samples are read from a ring.

    Each sample is read from ``length`` consecutive rows of one environment, the first a multiple of ``stride``.
    ``read(items, row, env, frames) -> (sample, usable)`` reads the samples that begin in ``row`` of ``env``, both
    ``[N]`` int32; ``frames`` is the number of frames in a stack, or a tree of them. A sample whose ``usable`` ``[N]``
    (bool) is False must not be learned from.
    """

    length: int
    stride: int
    read: Callable[[Transition, Array, Array, PyTree], tuple[PyTree, Array]]


def transitions(n: int, gamma: Scalar) -> View:
    """Makes a view of n-step transitions, as `Outcome` ``[N]`` (Sutton & Barto 2018, eq. 7.1).

    ``reward`` is the discounted sum of the rewards of ``h`` steps, as far as the episode goes; ``discount`` is
    ``gamma^h``, or 0 if the episode terminated within them; ``next_obs`` is the observation after ``h`` steps. ``h`` is
    ``n``, or less if an episode is truncated sooner. A termination does not end the count: ``next_obs`` and
    ``next_extras`` are then those of a later episode, and must not be used, as a ``discount`` of 0 says. At a truncated
    step it depends on the ring:

    - If the ring holds that step's next observation, a transition ends after the step. There are no extras of its next
      observation, so ``next_extras`` are those of the truncated step itself.
    - Otherwise a transition ends before that step, and a transition that begins with it is not usable.

    Nor is one that an agent began while it was out of the game.

    Args:
        n: The number of steps, at least 1.
        gamma: A scalar, which may be traced.

    Raises:
        ValueError: ``n`` lies below 1.
    """
    if n < 1:
        raise ValueError(f"n = {n}: must be at least 1")

    def read(items: Transition, row: Array, env: Array, frames: PyTree) -> tuple[Outcome, Array]:
        rows = (row[None] + jnp.arange(n)[:, None]) % items.reward.shape[0]  # [n, N]
        envs = jnp.broadcast_to(env, rows.shape)
        reward, truncated = items.reward[rows, envs], items.truncated[rows, envs]
        has_next = storage.holds_next(items, rows, envs)
        step_discount = gamma * (1 - items.terminated[rows, envs])
        nothing = jnp.zeros_like(reward[0]), jnp.ones_like(reward[0]), jnp.zeros_like(row)
        window = nothing
        for k in reversed(range(n)):
            total, discount, horizon = _where(truncated[k] & has_next[k], nothing, window)
            window = reward[k] + step_discount[k] * total, step_discount[k] * discount, horizon + 1
            window = _where(truncated[k] & ~has_next[k], nothing, window)
        total, discount, horizon = window
        after = (row + horizon) % items.reward.shape[0]
        final = (after - 1) % items.reward.shape[0]
        next_obs = storage.observe(items, after, env, frames)
        if storage.stores_next(items):
            cut = items.truncated[final, env]
            next_obs = _where(cut, storage.observe_next(items, final, env, frames), next_obs)
            after = jnp.where(cut, final, after)
        outcome = Outcome(
            obs=storage.observe(items, row, env, frames),
            action=items.action[row, env],
            reward=total,
            discount=discount,
            next_obs=next_obs,
            extras=storage.read(items.extras, row, env),
            next_extras=storage.read(items.extras, after, env),
        )
        usable, present = has_next[0] | ~truncated[0], storage.present(items, row, env)
        return outcome, usable if isinstance(present, tuple) else usable & present

    return View(n + 1, 1, read)


class Cut(NamedTuple):
    """The last truncated step of a sequence whose next observation is stored.

    ``step`` ``[N]`` (int32) is the step within the sequence, or -1 if there is none; ``obs`` ``[N, ...]`` is its next
    observation.
    """

    step: Array
    obs: PyTree


def _cut(items: Transition, rows: Array, envs: Array, frames: PyTree) -> Cut:
    """Reads the `Cut` of the sequences in ``rows`` of ``envs``, both ``[L, N]``."""
    known = items.truncated[rows, envs] & storage.holds_next(items, rows, envs)
    step = jnp.max(jnp.where(known, jnp.arange(rows.shape[0])[:, None], -1), axis=0)
    row = jnp.take_along_axis(rows, jnp.maximum(step, 0)[None], axis=0)[0]
    return Cut(step, storage.observe_next(items, row, envs[0], frames))


def _where(chosen: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Selects ``yes`` where ``chosen`` ``[N]``, otherwise ``no``; leaves ``[N, ...]``."""
    return jax.tree.map(lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), yes, no)


def sequences(length: int, stride: int = 1) -> View:
    """Makes a view of sequences of ``L = length`` consecutive steps, as `Transition` ``[L, N]``.

    They begin at every ``stride``-th row. ``obs[i + 1]`` is the next observation of step ``i``, unless the episode
    ended there: then it is the first of another episode (see `returns.stored_n_step` for truncated steps). ``next_obs``
    is the `Cut` of each sequence, or ``()`` for a ring without next observations. ``extras`` ``[N]`` are those of the
    first step; of `Recorded` extras, ``every`` is ``[L, N]``.

    Raises:
        ValueError: A number lies below 1.
    """
    if min(length, stride) < 1:
        raise ValueError(f"length = {length}, stride = {stride}: must be at least 1")

    def read(items: Transition, row: Array, env: Array, frames: PyTree) -> tuple[Transition, Array]:
        rows = (row[None] + jnp.arange(length)[:, None]) % items.reward.shape[0]  # [L, N]
        envs = jnp.broadcast_to(env, rows.shape)
        sequence = Transition(
            obs=storage.observe(items, rows, envs, frames),
            **{name: getattr(items, name)[rows, envs] for name in ("action", "reward", "terminated", "truncated")},
            next_obs=_cut(items, rows, envs, frames) if storage.stores_next(items) else (),
            extras=_extras(items.extras, row // stride, env, rows, envs),
            present=storage.present(items, rows, envs),
        )
        return sequence, jnp.ones(row.shape, bool)

    return View(length, stride, read)


def _extras(extras: PyTree, block: Array, env: Array, rows: Array, envs: Array) -> PyTree:
    """Reads the extras of sequences that begin with ``block`` of ``env`` and lie in ``rows`` of ``envs``.

    The first two are ``[N]``, the other two ``[L, N]``.
    """
    if not isinstance(extras, Recorded):
        return storage.read(extras, block, env)
    return Recorded(storage.read(extras.first, block, env), storage.read(extras.every, rows, envs))
