"""A league: several learners in one program, who meet each other and versions of each other.

Each of the ``K`` players that learn owns as many of the environments: ``G`` matches of ``E``. In each environment it
has one seat, from which it learns, and its opponent all others. The policy of a training is the main agent's. Who the
players are, and whom they meet, is in `league_players`. Rows are those of `envs.fleet`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import trees
from purerl.formulas import opponents
from purerl.learners import league_players
from purerl.learners.league_players import MAIN, State, num_players
from purerl.types import Key, Learner, Metrics, PyTree, Transition


class Seats(NamedTuple):
    """Rows of a fleet: the players' own ``[K, G, E]``, and those of their opponents ``[K, G, E * (N - 1)]``. ``order``
    ``[B]`` says where each row stands if all own rows come first, and then the others."""

    own: np.ndarray
    others: np.ndarray
    order: np.ndarray


def seats(config: Any, num_agents: int) -> Seats:
    """Who plays which row. A player's seat changes from one environment to the next."""
    matches = num_players(config), config.past_met
    rows = np.arange(config.num_envs * num_agents).reshape(matches[0], -1, num_agents)
    own = np.arange(num_agents) == (np.arange(rows.shape[1]) % num_agents)[:, None]
    mine, theirs = (rows[:, which].reshape(*matches, -1) for which in (own, ~own))
    return Seats(mine, theirs, np.argsort(np.concatenate([mine.reshape(-1), theirs.reshape(-1)])))


def league(
    config: Any,
    num_agents: int,
    learner: Learner,
    snapshot: Callable[[PyTree], PyTree],
    acting_as: Callable[[PyTree, PyTree], PyTree],
) -> Learner:
    """A league of ``learner``, with a `State` around those of its players.

    ``snapshot(state)`` is what acting needs of a learner's state, and ``acting_as(state, snapshot)`` the state that
    acts so. A game is won if its last reward is above 0. Metrics are the main agent's.
    """
    where, players = seats(config, num_agents), num_players(config)
    own, others = where.own.reshape(players, -1), where.others.reshape(players * config.past_met, -1)
    of = lambda rows, tree: jax.tree.map(lambda x: x[rows], tree)

    def init(key: Key, obs: PyTree) -> State:
        key_learner, key_match = jax.random.split(key)
        keys = jax.random.split(key_learner, players)
        learned = jax.lax.map(lambda given: learner.init(*given), (keys, of(own, obs)))
        first, none = snapshot(trees.take(learned, MAIN)), jnp.zeros((), jnp.int32)
        state = State(
            learner=learned,
            initial=learned,
            past=jax.tree.map(lambda x: jnp.broadcast_to(x, (config.past_selves, *x.shape)), first),
            parent=jnp.full(config.past_selves, -1, jnp.int32).at[0].set(MAIN),
            payoff=opponents.no_games(players + config.past_selves),
            met=jnp.zeros(where.own.shape[:2], jnp.int32),
            whole=jnp.ones(where.own.shape, bool),
            kept_ago=jnp.zeros(players, jnp.int32),
            num_kept=none + 1,
            age=none,
        )
        return state._replace(met=league_players.draw(config, state, key_match))

    def explore(state: State, obs: PyTree, carry: PyTree, noise: PyTree):
        def theirs(policy: PyTree, *given: PyTree):
            return learner.explore(acting_as(trees.take(state.learner, MAIN), policy), *given)

        given = obs, carry, noise
        everyone = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), jax.vmap(snapshot)(state.learner), state.past)
        facing = of(state.met.reshape(-1), everyone)
        made = jax.vmap(learner.explore)(state.learner, *of(own, given)), jax.vmap(theirs)(facing, *of(others, given))
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y])[where.order], *trees.merge(made, 2))

    def update(state: State, trajectory: Transition, key: Key) -> tuple[State, Metrics]:
        key_learn, key_keep, key_match = jax.random.split(key, 3)
        mine = of((slice(None), own), trajectory)  # [T, K, G * E]
        learned, metrics = jax.vmap(learner.update, in_axes=(0, 1, 0))(
            state.learner, mine, jax.random.split(key_learn, players)
        )
        points, last = opponents.points(trajectory.reward[:, where.own]), trajectory.last[:, where.own]
        facing_past = (state.met[MAIN] >= players)[None, :, None]
        state, counts = league_players.recorded(state, points, last)
        state = state._replace(learner=learned, kept_ago=state.kept_ago + 1, age=state.age + 1)
        due = state.age % config.match_period == 0
        state, begins = league_players.keep(config, state, jax.vmap(snapshot)(learned), due, key_keep)
        met = league_players.draw(config, state, key_match)
        state = state._replace(met=jnp.where(due, met, state.met), whole=jnp.where(due, last[-1], state.whole))
        against_past = counts[:, MAIN] & facing_past
        of_league = {
            "past_selves": jnp.sum(state.parent >= 0, dtype=jnp.float32),
            "score_against_past": jnp.sum(points[:, MAIN] * against_past) / jnp.sum(against_past),
            "exploiters_reset": jnp.sum(begins, dtype=jnp.float32),
        }
        return state, {**trees.take(metrics, MAIN), **of_league}

    return learner._replace(
        init=init,
        explore=explore,
        policy=lambda state: learner.policy(trees.take(state.learner, MAIN)),
        update=update,
    )
