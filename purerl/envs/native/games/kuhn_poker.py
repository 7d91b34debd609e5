"""Kuhn poker: three cards, one of them for each of two players, and one bet."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.native.games.game import bits, check, game
from purerl.spaces import MultiDiscrete
from purerl.types import Array, Env

NAME = "KuhnPoker-v0"
AGENTS = np.arange(2, dtype=np.int32)
FIRST_MOVES = np.array([True, False, False, True, False])
"""Whether it is the first mover's turn, after nothing, a pass, a bet, a pass and a bet, and at the end."""
SECOND_MOVES = np.array([False, True, True, False, False])
FOLLOWING = np.array([[1, 2], [4, 3], [4, 4], [4, 4]], np.int32)
"""The history ``[4]`` after an action ``[2]``; 4 is the end."""
FOLDED = np.array([[0, 0], [0, 0], [1, 0], [-1, 0]], np.float32)
"""What the first mover gets because an agent folds, by history and action."""
SHOWN = np.array([[0, 0], [1, 0], [0, 2], [0, 2]], np.float32)
"""What the agent with the higher card gets when cards are shown, by history and action."""


class Physical(NamedTuple):
    """The cards of both agents ``[2]``, which agent moves first, and the history; int32."""

    cards: Array
    first: Array
    history: Array


def kuhn_poker(*, draw_seats: int = 1) -> Env:
    """Makes KuhnPoker-v0.

    Each agent pays 1 into the pot; the reward at the last step is what an agent wins or loses, 1 or 2.

    Action 0 passes (checks, or folds to a bet), action 1 bets (or calls) 1. At each step one agent acts, and what the
    other does is ignored. The observation ``[9]`` (bool) is the agent's card ``[3]`` (jack, queen, king), its seat
    ``[2]`` (first or second mover) and the history ``[4]`` (nothing, a pass, a bet, a pass and a bet), one-hot each; at
    the end all bits of the history are False. In equilibrium the first mover loses 1/18 a game; in random play it wins
    1/8.

    Args:
        draw_seats: With 1 each episode draws which agent moves first, so that an agent's mean over seats is 0 in
            equilibrium; with 0 it is agent 0.

    Raises:
        ConfigError: If ``draw_seats`` is neither 0 nor 1.
    """
    check(NAME, "draw_seats", draw_seats, draw_seats in (0, 1), "0 or 1")

    def initial(level):
        cards = jnp.stack([level[0], (level[0] + 1 + level[1]) % 3])
        return Physical(cards, level[2] * draw_seats, jnp.zeros((), jnp.int32))

    def dynamics(now, action):
        mover = jnp.where(jnp.asarray(FIRST_MOVES)[now.history], now.first, 1 - now.first)
        place = now.history, action[mover]
        higher = jnp.where(now.cards[now.first] > now.cards[1 - now.first], 1.0, -1.0)
        gain = jnp.asarray(FOLDED)[place] + jnp.asarray(SHOWN)[place] * higher
        following = now._replace(history=jnp.asarray(FOLLOWING)[place])
        return following, jnp.where(now.first == AGENTS, gain, -gain), following.history == 4

    def observe(now):
        history = jax.nn.one_hot(jnp.stack([now.history] * 2), 4, dtype=bool)
        cards, seats = (jax.nn.one_hot(x, n, dtype=bool) for x, n in ((now.cards, 3), (AGENTS ^ now.first, 2)))
        return jnp.concatenate([cards, seats, history], axis=-1)

    def acting(obs):
        first, history = obs[..., 3], obs[..., 5:]
        after = lambda moves: jnp.any(history[..., moves[:4]], axis=-1)
        return jnp.where(first, after(FIRST_MOVES), after(SECOND_MOVES))

    return game(
        NAME,
        num_agents=2,
        num_actions=2,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        observation_space=bits(9),
        time_limit=3,
        levels=lambda key, shape: spaces.sample(MultiDiscrete((3, 2, 2)), key, shape),
        acting=acting,
        zero_sum=True,
        hidden=True,
    )
