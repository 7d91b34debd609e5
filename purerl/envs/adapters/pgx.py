"""Adapter of pgx' games to `Env`. pgx (the extra ``purerl[pgx]``) is imported on first use."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.stepping import Consequence, episodes, lenient, unbounded
from purerl.spaces import Discrete
from purerl.types import Array, Env, Key, PyTree

SEATED = "kuhn_poker", "leduc_holdem"
"""Games whose observations do not show who began, without which different situations look the same."""

HIDDEN = "bridge_bidding", "kuhn_poker", "leduc_holdem", "sparrow_mahjong"
"""Games whose states hold cards or tiles that a player may not know."""

MEANT = {"go_9x9": {"size": 9}}
"""Arguments that a game's name stands for, unlike the constructor's defaults."""


def make_pgx(task: str, *, max_steps: int | None = None, **params: Any) -> Env:
    """Makes the game of pgx called ``task``, for example ``minatar-breakout``, ``2048`` or ``connect_four``.

    ``max_steps`` is as in `from_pgx`, and ``params`` are arguments of the game's constructor, which may not be traced.

    Raises:
        ConfigError: If the name or a parameter is unknown, or pgx is not installed.
    """
    name = f"pgx/{task}"
    with library("pgx", task):
        environment = game(task, params)
        own = inspect.signature(type(environment)).parameters
        check_parameters(name, params, (*own, "max_steps"))
    return from_pgx(name, environment, max_steps=max_steps)


def game(task: str, params: dict[str, Any]) -> Any:
    """Returns pgx' own game called ``task``, with those of ``params`` that are arguments of its constructor."""
    import pgx

    constructor = type(pgx.make(task))
    own = inspect.signature(constructor).parameters
    return constructor(**MEANT.get(task, {}) | {name: value for name, value in params.items() if name in own})


def from_pgx(name: str, environment: Any, *, max_steps: int | None = None) -> Env:
    """Adapts a game of pgx. ``max_steps`` truncates; pgx' own limits of some games are draws, which terminate.

    In the games of MinAtar every action is legal, and the observation is pgx' own. For all others it is a dict of
    ``obs`` and ``legal`` (bool ``[A]``), and `Env.legal` gives the latter; an illegal action ends the game. In games
    for several the players are the agents, by their number in pgx, and the observation is each one's view. There also
    is ``acting`` (bool), which `Env.acting` gives: whether it is this player's turn. For a player that waits every
    action is legal, and ignored. Views of the games `SEATED` end with the player's seat, counted from the one that
    began, as bits.

    A level is a key, and so is the noise of a step.

    Raises:
        ConfigError: If a number is too small.
    """
    num_players = environment.num_players
    several, free = num_players > 1, environment.id.startswith("minatar-")
    players = np.arange(num_players, dtype=np.int32)

    def observe(state: PyTree, first: PyTree) -> PyTree:
        if not several:
            return state.observation if free else {"obs": state.observation, "legal": state.legal_action_mask}
        obs = jax.vmap(environment.observe, (None, 0))(state, players)
        if environment.id in SEATED:
            seat = (players - first) % num_players
            obs = jnp.concatenate([obs, seat[:, None] == players], axis=-1)
        acting = players == state.current_player
        return {"obs": obs, "legal": state.legal_action_mask | ~acting[:, None], "acting": acting}

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        state = environment.init(key)
        first = state.current_player if several else ()
        return (state, first), observe(state, first)

    def step(states: PyTree, action: Array, key: Key) -> Consequence:
        state, first = states
        state = environment.step(state, action[state.current_player] if several else action, key)
        rewards = state.rewards if several else state.rewards[0]
        return Consequence((state, first), observe(state, first), rewards, state.terminated, state.truncated)

    with lenient():
        (state, _), shapes = jax.eval_shape(reset, jax.random.key(0))
    hidden = environment.id in HIDDEN
    env = episodes(
        name,
        reset,
        step,
        unbounded(shapes, lead=int(several)),
        Discrete(state.legal_action_mask.shape[0]),
        chance=jax.random.split,
        max_steps=max_steps,
        legal=None if free else lambda obs: obs["legal"],
        num_agents=num_players,
    )
    if not several:
        return env
    return env._replace(acting=lambda obs: obs["acting"], zero_sum=True, ends_together=True, hidden=hidden)
