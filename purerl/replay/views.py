"""What is read of a ring: transitions over ``n`` steps, or whole sequences."""

from collections.abc import Callable
from typing import NamedTuple

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
    The true observation after a truncated step was never stored: a window stops before it, and a transition that
    begins with it is not usable.
    """

    def read(items: Item, row: Array, env: Array, num_frames: int) -> tuple[Outcome, Array]:
        rows = (row[None] + jnp.arange(n)[:, None]) % items.reward.shape[0]  # [n, N]
        envs = jnp.broadcast_to(env, rows.shape)
        reward, truncated = items.reward[rows, envs], items.truncated[rows, envs]
        step_discount = gamma * (1 - items.terminated[rows, envs])
        total, discount, horizon = jnp.zeros_like(reward[0]), jnp.ones_like(reward[0]), jnp.zeros_like(row)
        for k in reversed(range(n)):
            total = jnp.where(truncated[k], 0.0, reward[k] + step_discount[k] * total)
            discount = jnp.where(truncated[k], 1.0, step_discount[k] * discount)
            horizon = jnp.where(truncated[k], 0, horizon + 1)
        after = (row + horizon) % items.reward.shape[0]
        found = Outcome(
            obs=storage.observe(items, row, env, num_frames),
            action=items.action[row, env],
            reward=total,
            discount=discount,
            next_obs=storage.observe(items, after, env, num_frames),
            extras=storage.read(items.extras, row, env),
            next_extras=storage.read(items.extras, after, env),
        )
        return found, ~truncated[0]

    return View(n + 1, 1, read)


def sequences(length: int, stride: int = 1) -> View:
    """``length`` steps in a row, as `Item` ``[L, N]``, beginning at every ``stride``-th row.

    ``obs[i + 1]`` is the next observation of step ``i`` unless the episode ended there. After a truncated step it is
    another episode's, and the true one was never stored; see `returns.stored_n_step`. ``extras`` ``[N]`` are those of
    the first step.
    """

    def read(items: Item, row: Array, env: Array, num_frames: int) -> tuple[Item, Array]:
        rows = (row[None] + jnp.arange(length)[:, None]) % items.reward.shape[0]  # [L, N]
        envs = jnp.broadcast_to(env, rows.shape)
        found = Item(
            obs=storage.observe(items, rows, envs, num_frames),
            **{name: getattr(items, name)[rows, envs] for name in ("action", "reward", "terminated", "truncated")},
            extras=storage.read(items.extras, row // stride, env),
        )
        return found, jnp.ones(row.shape, bool)

    return View(length, stride, read)
