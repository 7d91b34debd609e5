"""What is read of a ring: transitions over ``n`` steps, or whole sequences."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.replay import storage
from purerl.types import Array, Item, Outcome, PyTree


class View(NamedTuple):
    """One sample: ``length`` rows in a row of one environment, the first a multiple of ``stride``.

    ``read(items, row, env, num_frames) -> (sample, usable)`` reads those that begin in ``row`` of ``env``, both ``[N]``
    int32. Where ``usable`` ``[N]`` (bool) is False, nothing can be learned.
    """

    length: int
    stride: int
    read: Callable[[Item, Array, Array, int], tuple[PyTree, Array]]


def transitions(n: int, gamma: Array) -> View:
    """Transitions over at most ``n`` steps, as `Outcome` ``[N]`` (Sutton & Barto 2018, eq. 7.1).

    ``reward`` is the discounted sum of the rewards of ``h`` steps, ``discount`` is ``gamma^h``, or 0 if the episode
    terminated within them, and ``next_obs`` the observation after them. ``h`` is ``n`` unless the episode ends sooner.
    A ring that stores no next observations lacks the one after a truncated step: a window stops before it, and a
    transition that begins with it is not usable. Otherwise a window stops after it, and ``next_extras``, which nobody
    recorded there, are those of the truncated step itself. Raises `ValueError` for ``n`` below 1.
    """
    if n < 1:
        raise ValueError(f"n = {n}: must be at least 1")

    def read(items: Item, row: Array, env: Array, num_frames: int) -> tuple[Outcome, Array]:
        stored = bool(jax.tree.leaves(items.next_obs))
        rows = (row[None] + jnp.arange(n)[:, None]) % items.reward.shape[0]  # [n, N]
        envs = jnp.broadcast_to(env, rows.shape)
        reward, truncated = items.reward[rows, envs], items.truncated[rows, envs]
        step_discount = gamma * (1 - items.terminated[rows, envs])
        nothing = jnp.zeros_like(reward[0]), jnp.ones_like(reward[0]), jnp.zeros_like(row)
        window = nothing
        for k in reversed(range(n)):
            cut = functools.partial(jax.tree.map, functools.partial(jnp.where, truncated[k]), nothing)
            total, discount, horizon = cut(window) if stored else window
            window = reward[k] + step_discount[k] * total, step_discount[k] * discount, horizon + 1
            window = window if stored else cut(window)
        total, discount, horizon = window
        after = (row + horizon) % items.reward.shape[0]
        final = (after - 1) % items.reward.shape[0]
        if stored:
            next_obs = storage.observe_next(items, final, env, num_frames)
            after = jnp.where(items.truncated[final, env], final, after)
        else:
            next_obs = storage.observe(items, after, env, num_frames)
        found = Outcome(
            obs=storage.observe(items, row, env, num_frames),
            action=items.action[row, env],
            reward=total,
            discount=discount,
            next_obs=next_obs,
            extras=storage.read(items.extras, row, env),
            next_extras=storage.read(items.extras, after, env),
        )
        return found, jnp.ones_like(truncated[0]) if stored else ~truncated[0]

    return View(n + 1, 1, read)


def sequences(length: int, stride: int = 1) -> View:
    """``length`` steps in a row, as `Item` ``[L, N]``, beginning at every ``stride``-th row.

    ``obs[i + 1]`` is the next observation of step ``i`` unless the episode ended there. After a truncated step it is
    another episode's; see `returns.stored_n_step`. ``next_obs`` are the true ones of a ring that stores them, else
    ``()``. ``extras`` ``[N]`` are those of the first step. Raises `ValueError` for numbers below 1.
    """
    if min(length, stride) < 1:
        raise ValueError(f"length = {length}, stride = {stride}: must be at least 1")

    def read(items: Item, row: Array, env: Array, num_frames: int) -> tuple[Item, Array]:
        rows = (row[None] + jnp.arange(length)[:, None]) % items.reward.shape[0]  # [L, N]
        envs = jnp.broadcast_to(env, rows.shape)
        stored = bool(jax.tree.leaves(items.next_obs))
        found = Item(
            obs=storage.observe(items, rows, envs, num_frames),
            **{name: getattr(items, name)[rows, envs] for name in ("action", "reward", "terminated", "truncated")},
            next_obs=storage.observe_next(items, rows, envs, num_frames) if stored else (),
            extras=storage.read(items.extras, row // stride, env),
        )
        return found, jnp.ones(row.shape, bool)

    return View(length, stride, read)
