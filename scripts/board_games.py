"""Board games that AlphaZero learns from games against itself.

    python scripts/board_games.py tic-tac-toe [--seeds S]      against optimal play, and over all positions
    python scripts/board_games.py connect-four [--run RUN] [--seeds S] [--frames N] [--games N]
                                                               against random, one-step and depth-4 minimax players, by
                                                               the agents of a run or by what is trained first
    python scripts/board_games.py legality                     illegal actions over random positions, also of Go

Each is told with as many simulations as in training, and with others: 0 is the network alone. Prints whether each claim
holds; the exit status is 1 if one fails.
"""

import argparse
import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, few, population

from purerl import envs, load
from purerl.algos.alphazero import BOARD, alphazero
from purerl.envs.episodic import EpisodeState
from purerl.envs.native.games.tic_tac_toe import CELLS, LINES, Physical
from purerl.errors import ConfigError
from purerl.formulas.aggregates import share
from purerl.learners.parts import planning
from purerl.loops.evaluation import Player, player, playing, random_player, versus
from purerl.types import Array, Env, Key, Learner, PyTree, Situation

TIC_TAC_TOE: dict[str, Any] = {**BOARD, "total_steps": 400_000, "n_step": 9}
CONNECT_FOUR: dict[str, Any] = {**BOARD, "n_step": 42, "convolutions": ("32", "32"), "hidden_sizes": (128,)}


class Solved(NamedTuple):
    """All positions of tic-tac-toe in which somebody moves, as agent 0 who moves, and what each action is worth.

    ``marks`` ``[P, 2, 9]`` bool, ``worth`` ``[P, 9]``: 1, 0 or -1, and nan where a cell is taken.
    """

    marks: np.ndarray
    worth: np.ndarray

    @property
    def best(self) -> np.ndarray:
        """Which actions are optimal, ``[P, 9]``."""
        return self.worth == np.nanmax(self.worth, axis=1, keepdims=True)


@functools.cache
def solved() -> Solved:
    """Solves tic-tac-toe by minimax over all positions that can be reached."""
    worth: dict[tuple[frozenset[int], frozenset[int]], np.ndarray] = {}

    def solve(mine: frozenset[int], theirs: frozenset[int]) -> float:
        if (mine, theirs) not in worth:
            of_cell = np.full(CELLS, np.nan)
            for cell in set(range(CELLS)) - mine - theirs:
                marked = mine | {cell}
                won = any(marked.issuperset(line) for line in LINES.tolist())
                full = len(marked | theirs) == CELLS
                of_cell[cell] = 1.0 if won else 0.0 if full else -solve(theirs, marked)
            worth[mine, theirs] = of_cell
        return float(np.nanmax(worth[mine, theirs]))

    solve(frozenset(), frozenset())
    marks = np.array([[[cell in side for cell in range(CELLS)] for side in place] for place in worth])
    return Solved(marks, np.array(list(worth.values())))


def situations(env: Env) -> Situation:
    """All positions of `solved` as rows of both agents; agent 0 moves."""
    marks = solved().marks
    physical = Physical(jnp.asarray(marks), jnp.zeros(len(marks), jnp.int32))
    env_state = EpisodeState(physical, jnp.asarray(marks.sum(axis=(1, 2)), jnp.int32))
    acting = np.broadcast_to(np.array([True, False])[None, :, None], (len(marks), 2, 1))
    obs = np.concatenate([marks, marks[:, ::-1], acting], axis=-1)
    return Situation(jnp.asarray(obs.reshape(-1, *env.observation_space.shape)), (), env_state)


def optimal_player() -> Player:
    """Draws uniformly among the optimal moves of tic-tac-toe."""
    places = 2 ** np.arange(2 * CELLS)
    table = np.ones((2 ** (2 * CELLS), CELLS), bool)
    table[solved().marks.reshape(-1, 2 * CELLS) @ places] = solved().best

    def act(here: Situation, key: Key) -> tuple[Array, PyTree]:
        place = here.obs[:, :-1].astype(jnp.int32) @ jnp.asarray(places)
        return jax.random.categorical(key, jnp.where(jnp.asarray(table)[place], 0.0, -jnp.inf)), here.carry

    return Player(act, lambda num_envs: ())


def learner_of(config: Any, env: Env, simulations: int) -> Learner:
    """The learner that searches with so many simulations, whatever ``config`` says."""
    return alphazero.make_learner(dataclasses.replace(config, simulations=simulations), env)


def make_train(config: Any, env: Env) -> Callable[[Key], PyTree]:
    """Makes a function that trains and returns the policy of the end, which is the same for any number of
    simulations."""
    learner = alphazero.make_learner(config, env)
    return lambda key: learner.policy(alphazero.make_train(config, env)(key).state.learner)


def tic_tac_toe(seeds: int) -> None:
    """Games against a player that draws among optimal moves, and the share of optimal moves over all positions."""
    env, first_begins = envs.make("TicTacToe-v0"), envs.make("TicTacToe-v0", draw_seats=0)
    config, games, simulations = alphazero.Config(**TIC_TAC_TOE), few(1000, 10), (32, 0)

    def measure(config: Any) -> Callable:
        def train(key: Key) -> PyTree:
            policy, found = make_train(config, env)(key), []
            for learner in [learner_of(config, env, n) for n in simulations]:
                mine = player(learner, policy)
                played = versus(key, first_begins, mine, optimal_player(), 2 * games)
                moves = learner.exploit(policy, situations(env), key)[0][::2]
                found.append((played.outcome.reshape(-1, 2), moves))
            return found

        return train

    for n, (outcome, moves) in zip(simulations, population(measure, config, seeds), strict=True):
        right = np.take_along_axis(solved().best[None], moves[..., None], axis=2)[..., 0].mean(axis=1)
        lost = (outcome < 0).sum(axis=1)
        for seed, (optimal, losses) in enumerate(zip(right, lost, strict=True)):
            print(
                f"{n} simulations, seed {seed}: lost {losses[0]} and {losses[1]} of {games} games as first and second"
                f" mover; {optimal:.2%} of moves optimal over {len(solved().best)} positions",
                flush=True,
            )
        if n:
            claim(f"{n} simulations: no game lost on any seed", not lost.any())


ROWS, COLUMNS = 6, 7
"""Of connect four, row 0 at the top."""
FOURS = np.array(
    [
        [(row + i * down) * COLUMNS + column + i * right for i in range(4)]
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
        for row in range(ROWS)
        for column in range(COLUMNS)
        if row + 3 * down < ROWS and 0 <= column + 3 * right < COLUMNS
    ]
)
"""The cells of each line of four ``[69, 4]``."""
SOONER = 0.9
"""What a win or a loss is worth a move later."""


def worth_of_columns(mine: Array, theirs: Array, depth: int) -> Array:
    """What each column is worth ``[7]`` by minimax over ``depth`` moves, of stones ``[42]``; -2 where it is full."""

    def drop(column: Array) -> Array:
        empty = jnp.sum(~(mine | theirs).reshape(ROWS, COLUMNS)[:, column])
        stones = mine | (jnp.arange(ROWS * COLUMNS) == (empty - 1) * COLUMNS + column)
        worth = jnp.zeros(())
        if depth > 1:
            answers = worth_of_columns(theirs, stones, depth - 1)
            worth = jnp.where(jnp.all(stones | theirs), 0.0, -SOONER * jnp.max(answers))
        worth = jnp.where(jnp.any(jnp.all(stones[FOURS], axis=-1)), 1.0, worth)
        return jnp.where(empty > 0, worth, -2.0)

    return jax.vmap(drop)(jnp.arange(COLUMNS))


def minimax_player(depth: int) -> Player:
    """Draws uniformly among the best columns of connect four by minimax over ``depth`` moves.

    With 2 it wins at once where it can and blocks at once where it must.
    """

    def act(here: Situation, key: Key) -> tuple[Array, PyTree]:
        stones = here.obs["obs"].astype(bool).reshape(-1, ROWS * COLUMNS, 2)
        worth = jax.vmap(lambda x: worth_of_columns(x[:, 0], x[:, 1], depth))(stones)
        best = worth == jnp.max(worth, axis=-1, keepdims=True)
        return jax.random.categorical(key, jnp.where(best, 0.0, -jnp.inf)), here.carry

    return Player(act, lambda num_envs: ())


def in_parts(players: list[Player], rows: int) -> Player:
    """Plays ``rows`` rows each by the first player, by the second, and so on; none remembers anything."""

    def act(here: Situation, key: Key) -> tuple[Array, PyTree]:
        of = lambda i: here._replace(obs=jax.tree.map(lambda x: x[i * rows : (i + 1) * rows], here.obs))
        keys = jax.random.split(key, len(players))
        return jnp.concatenate([each.act(of(i), keys[i])[0] for i, each in enumerate(players)]), here.carry

    return Player(act, lambda num_envs: ())


def connect_four(seeds: int, run: str = "", frames: int = 2_000_000, games: int = 200) -> None:
    """Games against a random player, and against minimax over two moves and over four."""
    if run:
        loaded = load(run, playing=True)
        if (loaded.saved["algo"], loaded.saved["env"]) != (alphazero.name, "pgx/connect_four"):
            raise ConfigError(f"{run}: must be a run of alphazero on pgx/connect_four")
        config, env, policies = loaded.setup.config, loaded.env, loaded.policy
    else:
        config, env = alphazero.Config(**CONNECT_FOUR, total_steps=frames), envs.make("pgx/connect_four")
        policies = population(functools.partial(make_train, env=env), config, seeds)
    others = {"random": random_player(env), "one-step": minimax_player(2), "depth-4 minimax": minimax_player(4)}
    games = few(games, 2)
    opponent = in_parts(list(others.values()), 2 * games)

    def outcomes(policy: PyTree, simulations: int) -> Array:
        mine = player(learner_of(config, env, simulations), policy)
        played = versus(jax.random.key(0), env, mine, opponent, games * len(others))
        return played.outcome.reshape(len(others), games)

    for n in (0, 16, 64):
        of_seeds = jax.lax.map(functools.partial(outcomes, simulations=n), policies)
        for seed, of_others in enumerate(np.asarray(of_seeds)):
            for name, result in zip(others, of_others, strict=True):
                parts = [share(np.sum(result == points), games) for points in (1, 0, -1)]
                told = ", ".join(
                    f"{what} {part.value:.1%} ({part.low:.1%} to {part.high:.1%})"
                    for what, part in zip(("won", "drew", "lost"), parts, strict=True)
                )
                print(f"{n} simulations, seed {seed}, {games} games against {name}: {told}", flush=True)


class Taken(NamedTuple):
    """How many positions were searched in, and in how many an illegal action was tried, or taken with a search, or by
    the network alone."""

    positions: Any
    tried: Any
    taken: Any
    taken_alone: Any


def illegal(env: Env, planner: str, games: int, moves: int) -> Taken:
    """Searches with 16 simulations in each position of random games ``moves`` long, by a network of random numbers."""
    config = alphazero.Config(planner=planner, simulations=16, hidden_sizes=(32,))
    alone = alphazero.make_learner(dataclasses.replace(config, simulations=0), env)
    learner, plan, found = alphazero.make_learner(config, env), planning.plan, []
    key_play, key_network, key_search = jax.random.split(jax.random.key(0), 3)
    begin, move = playing(key_play, env, random_player(env), games)
    acting: Any = env.acting
    allowed: Any = env.legal

    def spy(*given: Any) -> planning.Planned:
        found.append(plan(*given))
        return found[-1]

    def look(loop: tuple[Situation, Array], time: Array) -> tuple[tuple[Situation, Array], Taken]:
        here, over = loop
        key = jax.random.fold_in(key_search, time)
        action = learner.explore(policy, here, learner.noise(key, over.shape))[0]
        acts, legal = acting(here.obs) & ~over, allowed(here.obs)
        visits = jnp.repeat(found[-1].visits, env.num_agents, axis=0)
        count = lambda which: jnp.sum(which & acts)
        takes = lambda action: count(~jnp.take_along_axis(legal, action[:, None], axis=1)[:, 0])
        tried = count(jnp.any((visits > 0) & ~legal, axis=1))
        taken = Taken(count(True), tried, takes(action), takes(alone.exploit(policy, here, key)[0]))
        here, _, step = move(here, time)
        return (here, over | step.game_over), taken

    with mock.patch.object(planning, "plan", spy):
        here = begin()
        policy = learner.policy(learner.init(key_network, here.obs))
        policy = jax.tree.map(lambda x: jax.random.normal(key_network, x.shape, x.dtype), policy)
        start = here, jnp.zeros(games * env.num_agents, bool)
        every = jax.jit(lambda: jax.lax.scan(look, start, jnp.arange(moves))[1])()
    return Taken(*(int(np.sum(x)) for x in every))


LEGALITY = {"TicTacToe-v0": (1800, 9), "pgx/connect_four": (500, 42), "pgx/go_9x9": (200, 100)}
"""Numbers of games and of moves, for at least 10,000 positions."""


def legality(seeds: int) -> None:
    """No illegal action is tried by a search or taken, over 10,000 positions of random games."""
    for name, (games, moves) in LEGALITY.items():
        if name.startswith("pgx") and not importlib.util.find_spec("pgx"):
            continue
        for planner in ("gumbel", "puct"):
            taken = illegal(envs.make(name), planner, few(games, 2), few(moves, 2))
            print(f"{name}, {planner}: {taken}", flush=True)
            claim(f"{name}, {planner}: at least 10,000 positions", taken.positions >= 10_000)
            claim(f"{name}, {planner}: no illegal action tried or taken", not any(taken[1:]))


EXPERIMENTS = {"tic-tac-toe": (tic_tac_toe, 3), "connect-four": (connect_four, 1), "legality": (legality, 1)}


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS, {"connect-four": "pgx"})


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
