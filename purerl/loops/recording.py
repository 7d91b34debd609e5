"""Recording of whole episodes as a dataset."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend
from purerl.loops.evaluation import Player, playing
from purerl.types import Array, Dataset, Env, Key, PyTree

SEGMENT = 64
"""The number of steps of each episode that the device plays before the host takes them."""


def record(key: Key, env: Env, whole: Player, num_episodes: int, max_steps: int = 10_000) -> Dataset:
    """Records episodes of a player, one after another; they are those that `evaluation.play` would play.

    An episode that is not over after ``max_steps`` steps is truncated there. In an environment with several agents,
    each agent's episode is one of its own. Do not jit it: the host collects what is played.

    Args:
        key: Consumed.
        env: An environment that is not the host's.
        whole: The player of all rows.
        num_episodes: The number of episodes.
        max_steps: The largest number of steps of an episode.

    Raises:
        ConfigError: The environment is the host's.
    """
    begin, move = playing(key, env, whole, num_episodes)

    def act(state: tuple[PyTree, Array], time: Array) -> tuple[tuple[PyTree, Array], tuple[Dataset, Array]]:
        here, finished = state
        following, action, step = move(here, time)
        cut = step.truncated | ((time + 1 >= max_steps) & ~step.terminated)
        made = Dataset(here.obs, action, step.reward, step.terminated, cut, step.next_obs)
        live = ~finished if isinstance(step.present, tuple) else ~finished & step.present
        return (following, finished | step.game_over | (time + 1 >= max_steps)), (made, live)

    how = backend.compiler_options()
    segment = jax.jit(lambda state, first: jax.lax.scan(act, state, first + jnp.arange(SEGMENT)), compiler_options=how)
    state = jax.jit(begin, compiler_options=how)(), jnp.zeros(num_episodes * env.num_agents, bool)

    def segments() -> Iterator[tuple[Dataset, np.ndarray, np.ndarray]]:
        nonlocal state
        for first in range(0, max_steps, SEGMENT):
            state, played = segment(state, jnp.int32(first))
            yield *jax.device_get(played), np.arange(num_episodes * env.num_agents)
            if np.all(state[1]):
                return

    return joined(segments())


def joined(segments: Iterable[tuple[Dataset, np.ndarray, np.ndarray]]) -> Dataset:
    """Joins the episodes of rows ``[B]``, one after another, from segments ``[T, B]`` of their play.

    Each segment comes with a mask, bool ``[T, B]``, of the steps that belong to an episode, and the number ``[B]`` of
    the episode of each row. In a segment ``final_obs`` is the true next observation of every step.
    """
    steps, rows, final, final_rows = [], [], [], []
    for made, live, number in segments:
        over = live & made.last
        steps.append(_where(made._replace(final_obs=()), live))
        rows.append(number[np.nonzero(live)[1]])
        final.append(_where(made.final_obs, over))
        final_rows.append(number[np.nonzero(over)[1]])
    return _in_order(steps, rows)._replace(final_obs=_in_order(final, final_rows))


def _where(tree: PyTree, chosen: np.ndarray) -> PyTree:
    """Selects the elements of leaves ``[T, B, ...]`` that are ``chosen`` ``[T, B]``, in order of time."""
    return jax.tree.map(lambda x: x[chosen], tree)


def _in_order(parts: list[Any], rows: list[np.ndarray]) -> Any:
    """Joins the elements selected from each segment, episode after episode."""
    order = np.argsort(np.concatenate(rows), kind="stable")
    join = functools.partial(jax.tree.map, lambda *x: np.concatenate(x)[order])
    return join(*parts)
