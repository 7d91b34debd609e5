"""A league: several learners in one program that play against each other and against versions of each other.

Each of the ``K`` players that learn owns an equal part of the environments: ``G`` matches of ``E`` environments. In
each environment it has one seat, from which it learns, and its opponent has all others. The policy of a training is the
main agent's. Who the players are, and whom they meet, is in `league_players`. Rows are those of `envs.fleet`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import trees
from purerl.formulas import opponents
from purerl.learners.parts import settings
from purerl.learners.wrappers import league_players
from purerl.learners.wrappers.league_players import MAIN, LeagueSettings, LeagueState, num_players
from purerl.learners.wrappers.past import PastSettings, at_rows
from purerl.learners.wrappers.wrapper import Wrapper
from purerl.types import Key, Learner, Metrics, PyTree, Situation, Transition, Updated


class Seats(NamedTuple):
    """Rows of a fleet: the players' own ``[K, G, E]``, and those of their opponents ``[K, G, E * (N - 1)]``.

    ``order`` ``[B]`` is the place of each row if all own rows come first, and then the others.
    """

    own: np.ndarray
    others: np.ndarray
    order: np.ndarray


def seats(matches: tuple[int, int], num_envs: int, num_agents: int) -> Seats:
    """Assigns the rows to ``matches``, (players, matches of each). A seat changes from one environment to the next."""
    rows = np.arange(num_envs * num_agents).reshape(matches[0], -1, num_agents)
    own = np.arange(num_agents) == (np.arange(rows.shape[1]) % num_agents)[:, None]
    mine, theirs = (rows[:, which].reshape(*matches, -1) for which in (own, ~own))
    return Seats(mine, theirs, np.argsort(np.concatenate([mine.reshape(-1), theirs.reshape(-1)])))


class LeagueBehaviour(NamedTuple):
    """What acting needs: behaviours of the players ``[K, ...]``, and of their opponents ``[K * G, ...]``."""

    players: PyTree
    facing: PyTree


def leagued(config: LeagueSettings, past: PastSettings, num_envs: int, num_agents: int, learner: Learner) -> Learner:
    """Makes a league of copies of ``learner``, with a `LeagueState` around those of its players.

    A game is won if its last reward is above 0. Metrics are the main agent's. ``past`` says how many versions are kept
    and met.
    """
    players = num_players(config)
    where = seats((players, past.past_met), num_envs, num_agents)
    own = where.own.reshape(players, -1)
    others = where.others.reshape(players * past.past_met, -1)

    def init(key: Key, obs: PyTree) -> LeagueState:
        key_learner, key_match = jax.random.split(key)
        keys = jax.random.split(key_learner, players)
        learned = jax.lax.map(lambda given: learner.init(*given), (keys, trees.take(obs, own)))
        first = learner.behaviour(trees.take(learned, MAIN))
        none = jnp.zeros((), jnp.int32)
        state = LeagueState(
            learner=learned,
            initial=learned,
            past=jax.tree.map(lambda x: jnp.broadcast_to(x, (past.past_selves, *x.shape)), first),
            parent=jnp.full(past.past_selves, -1, jnp.int32).at[0].set(MAIN),
            payoff=opponents.no_games(players + past.past_selves),
            met=jnp.zeros(where.own.shape[:2], jnp.int32),
            whole=jnp.ones(where.own.shape, bool),
            kept_ago=jnp.zeros(players, jnp.int32),
            num_kept=none + 1,
            age=none,
        )
        return state._replace(met=league_players.draw(config, state, key_match))

    def behaviour(state: LeagueState) -> LeagueBehaviour:
        playing = jax.vmap(learner.behaviour)(state.learner)
        everyone = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), playing, state.past)
        return LeagueBehaviour(playing, trees.take(everyone, state.met.reshape(-1)))

    def explore(behaviour: LeagueBehaviour, here: Situation, noise: PyTree) -> Any:
        act = lambda who, rows: jax.vmap(learner.explore)(who, at_rows(here, rows, num_agents), trees.take(noise, rows))
        made = act(behaviour.players, own), act(behaviour.facing, others)
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y])[where.order], *trees.merge(made, 2))

    def update(state: LeagueState, trajectory: Transition, key: Key) -> Updated:
        key_learn, key_keep, key_match = jax.random.split(key, 3)
        matches = jax.tree.map(lambda x: x.reshape(len(x), *where.own.shape), (trajectory.reward, trajectory.ended))
        mine = jax.tree.map(lambda x: x.reshape(len(x), *own.shape, *x.shape[2:]), trajectory)  # [T, K, G * E]
        learned, metrics, scores = jax.vmap(
            lambda *given: tuple(learner.update(*given)), in_axes=(0, 1, 0), out_axes=(0, 0, 1)
        )(state.learner, mine, jax.random.split(key_learn, players))
        points, last = opponents.points(matches[0]), matches[1]
        facing_past = (state.met[MAIN] >= players)[None, :, None]
        state, counts = league_players.recorded(state, points, last)
        state = state._replace(learner=learned, kept_ago=state.kept_ago + 1, age=state.age + 1)
        due = state.age % config.match_period == 0
        behaviours = jax.vmap(learner.behaviour)(learned)
        state, begins = league_players.keep(config, past.snapshot_period, state, behaviours, due, key_keep)
        met = league_players.draw(config, state, key_match)
        state = state._replace(met=jnp.where(due, met, state.met), whole=jnp.where(due, last[-1], state.whole))
        against_past = counts[:, MAIN] & facing_past
        of_league = {
            "past_selves": jnp.sum(state.parent >= 0, dtype=jnp.float32),
            "score_against_past": jnp.sum(points[:, MAIN] * against_past) / jnp.sum(against_past),
            "exploiters_reset": jnp.sum(begins, dtype=jnp.float32),
        }
        scores = jax.tree.map(lambda x: x.reshape(len(x), -1), scores)
        return Updated(state, {**trees.take(metrics, MAIN), **of_league}, scores)

    def observe(state: LeagueState, trajectory: Transition, key: Key) -> tuple[LeagueState, Metrics]:
        mine = jax.tree.map(lambda x: x.reshape(len(x), *own.shape, *x.shape[2:]), trajectory)
        observed, metrics = jax.vmap(learner.observe, in_axes=(0, 1, 0))(
            state.learner, mine, jax.random.split(key, players)
        )
        return state._replace(learner=observed), trees.take(metrics, MAIN)

    return learner._replace(
        init=init,
        behaviour=behaviour,
        explore=explore,
        policy=lambda state: learner.policy(trees.take(state.learner, MAIN)),
        update=update,
        rows=own.reshape(-1),
        observe=observe,
    )


league = Wrapper(
    "league",
    LeagueSettings,
    "opponents",
    "latest",
    wrap=lambda config, env, learner: leagued(config, config, config.num_envs, env.num_agents, learner),
    on=("league",),
    problems=league_players.problems,
    needs=(settings.ON_POLICY,),
    withholds=(settings.EVERY_DECISION,),
)
