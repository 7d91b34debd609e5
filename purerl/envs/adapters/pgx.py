"""Adapter of pgx' games for one player to `Env`. pgx (the extra ``purerl[pgx]``) is imported on first use."""

import inspect
from typing import Any

import jax

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.stepping import Consequence, episodes, lenient, unbounded
from purerl.errors import ConfigError
from purerl.spaces import Discrete
from purerl.types import Array, Env, Key, PyTree


def make_pgx(task: str, *, max_steps: int | None = None, reset_pool: int = 0, **params: Any) -> Env:
    """The game of pgx called ``task``, for example ``minatar-breakout`` or ``2048``.

    ``max_steps`` and ``reset_pool`` are those of `from_pgx`, and ``params`` are arguments of the game's constructor,
    which may not be traced. Raises `ConfigError` for an unknown name or parameter, and if pgx is not installed.
    """
    name = f"pgx/{task}"
    with library("pgx", task):
        import pgx

        environment = pgx.make(task)
        own = inspect.signature(type(environment)).parameters
        check_parameters(name, params, (*own, "max_steps", "reset_pool"))
        environment = type(environment)(**params)
    return from_pgx(name, environment, max_steps=max_steps, reset_pool=reset_pool)


def from_pgx(name: str, environment: Any, *, max_steps: int | None = None, reset_pool: int = 0) -> Env:
    """Adapts a game of pgx for one player. pgx has no time limits; ``max_steps`` adds one.

    In the games of MinAtar every action is legal, and the observation is pgx' own. For all others it is a dict of
    ``obs`` and ``legal`` (bool ``[A]``), and `Env.legal` gives the latter; an illegal action ends the game. The noise
    of a step is that of `stepping.episodes` with one key for pgx. Raises `ConfigError` for games of several players and
    for numbers that are too small.
    """
    if environment.num_players != 1:
        raise ConfigError(f"env = {name!r}: has {environment.num_players} players; only games for one are supported")
    free = environment.id.startswith("minatar-")

    def observe(state: PyTree) -> PyTree:
        return state.observation if free else {"obs": state.observation, "legal": state.legal_action_mask}

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        state = environment.init(key)
        return state, observe(state)

    def step(state: PyTree, action: Array, key: Key) -> Consequence:
        state = environment.step(state, action, key)
        return Consequence(state, observe(state), state.rewards[0], state.terminated, state.truncated)

    with lenient():
        state, shapes = jax.eval_shape(reset, jax.random.key(0))
    return episodes(
        name,
        reset,
        step,
        unbounded(shapes),
        Discrete(state.legal_action_mask.shape[0]),
        chance=jax.random.split,
        max_steps=max_steps,
        reset_pool=reset_pool,
        legal=None if free else lambda obs: obs["legal"],
    )
