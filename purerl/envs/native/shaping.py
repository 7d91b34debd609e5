"""The meta-game of opponent shaping (M-FOS; Lu et al. 2022, arXiv 2205.01447).

A step is a whole repeated game, an action the policy for it, and the opponent goes on learning.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.episodic import no_noise
from purerl.envs.native.games.game import check
from purerl.envs.native.games.matrix_game import GAMES
from purerl.formulas import repeated_games
from purerl.spaces import Box
from purerl.types import Array, Env, Key, Scalar, Step

NAME = "MatrixShaping-v0"
OPPONENTS: dict[str, Callable[..., Array]] = {
    "naive": repeated_games.naive_step,
    "lola": repeated_games.lola_step,
    "self": repeated_games.naive_step,
}
"""The update of the learner that an agent meets; with ``self`` agents meet one, or each other."""
TWO_BY_TWO = [name for name, payoffs in GAMES.items() if np.shape(payoffs) == (2, 2, 2)]


class Level(NamedTuple):
    """Logits ``[2, 5]`` with which both sides begin, and a number in [0, 1) that decides whom two agents meet."""

    logits: Array
    meeting: Array


class ShapingState(NamedTuple):
    """The state of the meta-game.

    It has the logits ``[N, 5]`` that each agent's learner plays next; the number in [0, 1) that decides whether agents
    meet learners in this episode; and the steps of this episode and the episodes before it, int32.
    """

    learner: Array
    meeting: Array
    t: Array
    episodes: Array


def matrix_shaping(
    *,
    game: str = "prisoners-dilemma",
    opponent: str = "naive",
    max_steps: int = 100,
    discount: float = 0.96,
    learning_rate: float = 1.0,
    hide_opponent: int = 0,
    naive: float = 1.0,
    naive_decrease: float = 0.0015,
) -> Env:
    """Makes MatrixShaping-v0: a step is a game of two actions, repeated for ever, whose exact value is the reward.

    The action ``[5]`` are logits of the first action ("cooperate") at the start and after CC, CD, DC and DD of one's
    own side (`formulas.repeated_games`). The reward is the discounted mean of the payoffs of the game between that
    policy and the opponent's. The observation ``[10]`` are the probabilities of both policies that were played last,
    one's own first, each from its owner's side; the opponent learns after it was observed. Episodes begin with standard
    normal logits for both, and never terminate. Those of an agent are also those of the other agent's learner.

    Args:
        game: A game of `MatrixGame-v0` with two actions; the agent has the seat of agent 0.
        opponent: ``naive`` ascends its own value, ``lola`` looks ahead to what it takes for the agent's next step. With
            ``self`` two agents, one in each seat, learn to shape: each other, or in some episodes a naive learner each.
        max_steps: Games after which an episode is truncated.
        discount: Discount factor of the rounds of a game, in [0, 1).
        learning_rate: Learning rate of the opponent's gradient steps on the discounted sum of its payoffs.
        hide_opponent: With 1 the observation ``[5]`` lacks the opponent's policy.
        naive: With ``self``, the probability that agents meet naive learners in their first episode.
        naive_decrease: By how much that probability falls with each episode.

    Raises:
        ConfigError: If ``game`` or ``opponent`` does not exist, ``discount`` is outside its range, or ``hide_opponent``
            is neither 0 nor 1.
    """
    check(NAME, "game", game, game in TWO_BY_TWO, f"one of {', '.join(TWO_BY_TWO)}")
    check(NAME, "opponent", opponent, opponent in OPPONENTS, f"one of {', '.join(OPPONENTS)}")
    check(NAME, "discount", discount, not isinstance(discount, int | float) or 0 <= discount < 1, "in [0, 1)")
    check(NAME, "hide_opponent", hide_opponent, hide_opponent in (0, 1), "0 or 1")
    several = opponent == "self"
    num_agents = 1 + several
    payoffs = seats(GAMES[game])
    mine, others = jnp.asarray(payoffs[:num_agents]), jnp.asarray(payoffs[::-1][:num_agents])

    def reduced(tree: Any) -> Any:
        """Removes the axis of agents, if there is one agent."""
        return tree if several else jax.tree.map(lambda x: x[0], tree)

    def learnt(learner: Array, own: Array) -> Array:
        move = lambda x, y, paid: OPPONENTS[opponent](x, y, paid, discount, learning_rate)
        return jax.vmap(move)(learner, own, others)

    def met(learner: Array, own: Array, is_naive: Array) -> Array:
        return jnp.where(is_naive, learner, own[::-1]) if several else learner

    def observation(own: Array, other: Array) -> Array:
        logits = own if hide_opponent else jnp.concatenate([own, other], axis=-1)
        return reduced(jax.nn.sigmoid(logits))

    def levels(key: Key, shape: tuple[int, ...]) -> Level:
        key_logits, key_meeting = jax.random.split(key)
        return Level(draw.normal(key_logits, (*shape, 2, 5)), draw.uniform(key_meeting, shape))

    def begin(level: Level) -> tuple[ShapingState, Array]:
        own, other = level.logits[:num_agents], level.logits[::-1][:num_agents]
        zero = jnp.zeros((), jnp.int32)
        return ShapingState(learnt(other, own), level.meeting, zero, zero), observation(own, other)

    def step(noise: tuple[()], env_state: ShapingState, action: Array) -> tuple[ShapingState, Step]:
        learner, meeting, t, episodes = env_state._replace(t=env_state.t + 1)
        own = action.reshape(num_agents, 5)
        other = met(learner, own, meeting < naive_probability(naive, naive_decrease, episodes))
        value = jax.vmap(repeated_games.values, in_axes=(0, 0, 0, None))(own, other, mine, discount)
        reward, truncated = reduced(((1 - discount) * value[:, 0], jnp.broadcast_to(t >= max_steps, (num_agents,))))
        made = Step(observation(own, other), reward, jnp.zeros_like(truncated), truncated)
        return ShapingState(learnt(learner, own), meeting, t, episodes), made

    def keep(before: ShapingState, begun: ShapingState) -> ShapingState:
        return begun._replace(episodes=before.episodes + 1)

    observation_space = Box(0.0, 1.0, (5 if hide_opponent else 10,), jnp.float32)
    action_space = Box(-np.inf, np.inf, (5,), jnp.float32)
    env = Env(NAME, levels, begin, no_noise, step, observation_space, action_space, num_agents=num_agents, keep=keep)
    return env._replace(ends_together=True, hidden=several or bool(hide_opponent))


def seats(matrices: Any) -> np.ndarray:
    """Returns the payoffs ``[2, 2, 4]`` of the agent in each seat and of the other.

    They are in CC, CD, DC and DD of that seat's side, and follow from the payoffs ``[2, 2, 2]`` of agents 0 and 1 by
    their actions.
    """
    row, column = np.asarray(matrices, np.float32)
    return np.array([[row.ravel(), column.ravel()], [column.T.ravel(), row.T.ravel()]])


def naive_probability(naive: Scalar, decrease: Scalar, episodes: Array) -> Array:
    """Returns the probability that agents meet naive learners after so many episodes."""
    return jnp.clip(naive - decrease * episodes, 0.0, 1.0)
