"""The players of a league: their opponents, the record of their games, and which are stored and which restart.

A main agent learns to be hard to beat by any player. Main exploiters learn to beat the main agent, and league
exploiters to beat all players. From time to time a version of a player is stored, and an exploiter restarts (Vinyals et
al. 2019, Nature 575, methods; for one race, so there is one main agent). The rules are those of `formulas.league`.

``K`` players learn, and ``P`` versions are stored; they are numbered together, and 0 is the main agent. Each learning
player plays ``G`` matches at a time, of ``E`` environments each.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl.formulas import league as rules
from purerl.formulas import opponents
from purerl.formulas.opponents import Payoff
from purerl.learners.wrappers.past import PastSettings, common_problems, minibatch_problems
from purerl.loops.settings import Loop
from purerl.types import Array, Env, Key, PyTree

IN_LEAGUE = cfg.Needs("opponents = 'league'", lambda config: config.opponents == "league")
MAIN = 0


@cfg.config
class LeagueSettings:
    """Several learners that play against each other and their past selves, with ``opponents = "league"``.

    Past selves are versions of all of them. At the end of a match period a version may be stored, and a learner may
    restart.
    """

    main_exploiters: Annotated[cfg.NonNegativeCount, IN_LEAGUE] = 1
    """Number of main exploiters in a league: learners that search for weaknesses of the main agent."""
    league_exploiters: Annotated[cfg.NonNegativeCount, IN_LEAGUE] = 1
    """Number of league exploiters in a league: learners that search for weaknesses of all of its players."""
    match_period: Annotated[cfg.Count, IN_LEAGUE] = 5
    """Iterations between two draws of opponents in a league. Games that are unfinished at a draw do not count."""


class LeagueState(NamedTuple):
    """The state of a league.

    ``learner`` and ``initial``, its first value, are ``[K, ...]``. ``past`` are behaviours ``[P, ...]``, versions of
    the players ``parent`` ``[P]``, which is -1 where there is no version yet. ``payoff`` is of all players.

    ``met`` ``[K, G]`` are the present opponents, and ``whole`` ``[K, G, E]`` is True where the current game began
    against them. ``kept_ago`` ``[K]`` and ``age`` count iterations, ``num_kept`` versions.
    """

    learner: PyTree
    initial: PyTree
    past: PyTree
    parent: Array
    payoff: Payoff
    met: Array
    whole: Array
    kept_ago: Array
    num_kept: Array
    age: Array


def num_players(config: LeagueSettings) -> int:
    """Returns the number of players that learn."""
    return 1 + config.main_exploiters + config.league_exploiters


def problems(config: LeagueSettings, env: Env | None) -> list[str]:
    """Returns the reasons why there can be no league, a line each."""
    if TYPE_CHECKING:
        assert isinstance(config, PastSettings) and isinstance(config, Loop)
    if problems := common_problems(config, "league", env):
        return problems
    players = num_players(config)
    if config.past_selves < players:
        problems.append(f"past_selves = {config.past_selves}: must be at least the {players} players that learn")
    if config.num_envs % (players * config.past_met):
        problems.append(
            f"num_envs = {config.num_envs}: must be a multiple of past_met = {config.past_met} times the {players} "
            "players that learn"
        )
    if env is None or problems:
        return problems
    return minibatch_problems(config, config.num_envs // players)


def chances(config: LeagueSettings, state: LeagueState) -> Array:
    """Computes the probabilities ``[K, K + P]`` of the opponents of each player that learns."""
    versions, of_main, of_exploiters = _versions(config, state)
    rates = opponents.win_rates(state.payoff)
    rows = [rules.main_agent(rates[MAIN], versions, of_main, of_exploiters, MAIN)]
    for player in range(1, num_players(config)):
        if player <= config.main_exploiters:
            rows.append(rules.main_exploiter(rates[player], of_main, MAIN))
        else:
            rows.append(rules.league_exploiter(rates[player], versions))
    return jnp.stack(rows)


def draw(config: LeagueSettings, state: LeagueState, key: Key) -> Array:
    """Draws the opponents ``[K, G]`` of all matches. Consumes ``key``."""
    noise = jax.random.uniform(key, state.met.shape)
    return jax.vmap(jax.vmap(opponents.choose, in_axes=(None, 0)))(chances(config, state), noise)


def recorded(state: LeagueState, points: Array, last: Array) -> tuple[LeagueState, Array]:
    """Records the results of games. A game counts only if its opponent did not change before it ended.

    Matches are recorded one after another, the games of each in the order in which they ended.

    Args:
        state: The league before.
        points: Points of the player ``[T, K, G, E]``.
        last: Where games ended, bool ``[T, K, G, E]``.

    Returns:
        The new state, and which of the games count, bool ``[T, K, G, E]``.
    """
    counts = last & (state.whole[None] | (jnp.cumsum(last, axis=0) > 1))
    games = lambda x: jnp.moveaxis(x, 0, 2).reshape(state.met.size, -1)
    player = jnp.repeat(jnp.arange(len(state.met)), state.met.shape[1])
    matches = player, state.met.reshape(-1), games(points), games(counts)
    payoff, _ = jax.lax.scan(lambda payoff, match: (opponents.record_all(payoff, *match), None), state.payoff, matches)
    return state._replace(payoff=payoff, whole=state.whole | jnp.any(last, axis=0)), counts


def keep(
    config: LeagueSettings, snapshot_period: int, state: LeagueState, policies: PyTree, due: Array, key: Key
) -> tuple[LeagueState, Array]:
    """Ends a match period if it is ``due``: stores versions of ready players, and restarts some exploiters.

    A player is ready if it wins often enough, or some time after it was last stored. Its version replaces the oldest
    one. An exploiter that restarts gets its initial state. Restarted players and new versions have an empty record.

    Args:
        config: Settings of the league.
        snapshot_period: Iterations between two versions of the main agent.
        state: The league before.
        policies: Behaviours of the players ``[K, ...]``.
        due: Whether the period ends, bool ``[]``.
        key: Consumed.

    Returns:
        The new state, and which players restart, bool ``[K]``.
    """
    players = num_players(config)
    places = len(state.parent)
    versions, _, _ = _versions(config, state)
    rates, games = opponents.win_rates(state.payoff), state.payoff.games
    of_main = np.arange(1, players) <= config.main_exploiters
    main = jnp.arange(players + places) == MAIN
    done = [rules.beats(rates[i], games[i], main if of_main[i - 1] else versions) for i in range(1, players)]
    patience = snapshot_period * np.concatenate([[1], np.where(of_main, 2, 1)])
    ready = due & (jnp.stack([jnp.zeros((), bool), *done]) | (state.kept_ago >= patience))
    reset = np.concatenate([[0.0], np.where(of_main, 1.0, rules.RESET)])
    begins = ready & (jax.random.uniform(key, (players,)) < reset)
    place = jnp.where(ready, (state.num_kept + jnp.cumsum(ready) - 1) % places, places)
    put = lambda x, new: x.at[place].set(new, mode="drop")
    begin = lambda x, old: jnp.where(begins.reshape(-1, *[1] * (x.ndim - 1)), old, x)
    new = jnp.concatenate([begins, put(jnp.zeros(places, bool), True)])
    kept = state._replace(
        learner=jax.tree.map(begin, state.learner, state.initial),
        past=jax.tree.map(put, state.past, policies),
        parent=put(state.parent, jnp.arange(players)),
        payoff=jax.tree.map(lambda x: jnp.where(new[:, None] | new[None], 0.0, x), state.payoff),
        kept_ago=jnp.where(ready, 0, state.kept_ago),
        num_kept=state.num_kept + jnp.sum(ready, dtype=jnp.int32),
    )
    return kept, begins


def _versions(config: LeagueSettings, state: LeagueState) -> tuple[Array, Array, Array]:
    """Returns which players ``[K + P]`` are versions: of any player, of the main agent, of a main exploiter."""
    parent = jnp.concatenate([jnp.full(num_players(config), -1), state.parent])
    return parent >= 0, parent == MAIN, (parent > MAIN) & (parent <= config.main_exploiters)
