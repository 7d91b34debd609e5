"""How far from an equilibrium play is, in games that are known exactly; and a league on tic-tac-toe.

    python scripts/games.py kuhn|rps                        fictitious play: the NashConv of the averages
    python scripts/games.py self-play|league [--seeds S]    trainings, a line for each seed

Kuhn poker ends below 0.02 after 1000 best responses of each seat, and rock, paper, scissors below 0.03 after 10,000.
PPO's self-play ends below 0.03 on Kuhn poker with a reference policy, and not without. Prints whether each claim holds;
the exit status is 1 if one fails.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, few, population, show

from purerl import envs, ppo, trees
from purerl.envs import agents
from purerl.formulas import games
from purerl.loops.evaluation import Player, player, random_player, versus
from purerl.types import Array, Learner, PyTree, Situation


def kuhn(first: np.ndarray, second: np.ndarray) -> float:
    return games.kuhn_gains(games.Plans(first, second))


def rps(row: np.ndarray, column: np.ndarray) -> float:
    return games.nash_conv(games.ROCK_PAPER_SCISSORS, row, column)


GAMES: dict[str, tuple[Callable, Callable, Any, tuple[int, ...], float]] = {
    "kuhn": (kuhn, games.kuhn_responses, games.kuhn_plans(np.full((2, 2, 3), 0.5)), (10, 50, 100, 300, 1000), 0.02),
    "rps": (rps, games.matrix_responses(games.ROCK_PAPER_SCISSORS), np.eye(3)[:2], (100, 1000, 10_000), 0.03),
}
"""How far a game's averages are from an equilibrium, its best responses, what is played first, the rounds after which
to look, and what the last of them must come below."""


def fictitious_play(game: str, seeds: int) -> None:
    """Both seats' best responses to the averages; nothing is drawn, so that one seed is all."""
    measure, respond, start, rounds, gate = GAMES[game]
    result = float("inf")
    for count, averages in enumerate(itertools.islice(games.fictitious_play(respond, *start), rounds[-1]), 1):
        if count in rounds:
            result = measure(*averages)
            print(f"after {count:>6} best responses: NashConv {result:.4f}")
    claim(f"NashConv at most {gate}", result <= gate)


KUHN = {
    "total_steps": 512 * 12 * 6000,
    "num_envs": 512,
    "num_steps": 12,
    "num_epochs": 2,
    "num_minibatches": 1,
    "hidden_sizes": (64,),
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.95,
    "entropy_coef": 0.0,
    "gamma": 1.0,
    "gae_lambda": 0.9,
}
"""About 2,700 games an iteration, of which a fifth are cut."""


def information_sets() -> np.ndarray:
    """Observations of Kuhn poker ``[2, 2, 3, 9]``, as `games.kuhn_plans` has the axes."""
    history = np.array([[0, 3], [1, 2]])  # nothing, a pass and a bet; a pass, a bet
    seat, _, card = np.indices((2, 2, 3))
    one_hot = np.eye(3)[card], np.eye(2)[seat], np.eye(4)[np.broadcast_to(history[..., None], (2, 2, 3))]
    return np.concatenate(one_hot, axis=-1).astype(bool)


def self_play(seeds: int) -> None:
    """PPO's last policy on Kuhn poker, with and without a price on the distance to a reference policy."""
    env = envs.make("KuhnPoker-v0")
    obs = jnp.asarray(information_sets().reshape(12, 9))
    for title, changes, holds, requirement in (
        ("eta 0.2, a new reference every 300", {"reference_period": 300}, lambda x: x <= 0.03, "at most 0.03"),
        ("without a reference", {}, lambda x: x >= 0.1, "at least 0.1"),
    ):

        def read(config: Any) -> Callable:
            def train(key: Any) -> Array:
                state, learner = ppo.make_train(config, env)(key).state, ppo.make_trainer(config, env).learner
                behaviour = learner.behaviour(state.learner)
                _, _, extras = learner.explore(behaviour, Situation(obs, ()), learner.noise(key, (12,)))
                return jax.nn.softmax(extras.policy)[:, 1].reshape(2, 2, 3)

            return train

        tables = population(read, ppo.Config(**KUHN, **changes), seeds)
        results = [games.kuhn_nash_conv(table) for table in tables]
        for seed, table in enumerate(tables):
            value = games.kuhn_value(games.kuhn_plans(table))
            print(f"{title}, seed {seed}: NashConv {results[seed]:.4f}, the first seat wins {value:.4f}", flush=True)
        claim(f"{title}: NashConv {requirement} on every seed", all(map(holds, results)))


LEAGUE = {
    "total_steps": 384 * 9 * 600,
    "num_envs": 384,
    "num_steps": 9,
    "opponents": "league",
    "past_selves": 15,
    "snapshot_period": 50,
    "num_minibatches": 4,
    "hidden_sizes": (128, 128),
    "learning_rate": 1e-3,
    "entropy_coef": 0.3,
    "gamma": 1.0,
}
ROLES = "main", "main exploiter", "league exploiter"


def league(seeds: int) -> None:
    """A league of PPO on tic-tac-toe: its main agent against random moves, and its versions against each other."""
    env = agents.own(envs.make("TicTacToe-v0"))
    config = ppo.Config(**LEAGUE | {"past_selves": few(15, 3)})
    learner = ppo.make_trainer(config, env).learner
    alone = ppo.make_learner(dataclasses.replace(config, opponents="latest"), env)

    def play(config: Any) -> Callable:
        def train(key: Any) -> PyTree:
            state = ppo.make_train(config, env)(key).state.learner
            main = player(learner, learner.policy(state))
            at_random = versus(jax.random.fold_in(key, 1), env, main, random_player(env), 1024).episode_return

            def meet(pair: Array) -> Array:
                both = [sampled(alone, trees.take(state.past, i)) for i in pair]
                return jnp.mean(versus(jax.random.fold_in(key, 2), env, *both, 128).episode_return)

            pairs = jnp.stack(jnp.meshgrid(*[jnp.arange(config.past_selves)] * 2, indexing="ij"), axis=-1)
            payoff = jax.lax.map(jax.vmap(meet), pairs)
            return jnp.stack([jnp.mean(at_random > 0), jnp.mean(at_random < 0)]), payoff, state.parent

        return train

    outcomes, payoffs, parents = population(play, config, seeds)
    show("the main agent: won, lost of 1024 games against random moves", outcomes)
    for seed, (payoff, parent) in enumerate(zip(payoffs, parents, strict=True)):
        payoff = (payoff - payoff.T) / 2
        rank = games.alpha_rank(payoff)
        order = np.argsort(-rank)
        print(f"seed {seed}: what versions win against each other in the mean, and their part of alpha-rank")
        for i in order:
            figures = " ".join(f"{x:5.2f}" for x in payoff[i, order])
            print(f"{ROLES[parent[i]]:>16} {figures}  {rank[i]:.3f}", flush=True)
    claim("at most 2 % lost on every seed", outcomes[:, 1].max() <= 0.02)
    claim("at least 75 % won on every seed", outcomes[:, 0].min() >= 0.75)


def sampled(learner: Learner, behaviour: PyTree) -> Player:
    """Plays as ``behaviour`` explores."""

    def act(here: Situation, key: Any) -> tuple[Array, PyTree]:
        return learner.explore(behaviour, here, learner.noise(key, (len(here.obs),)))[:2]

    return Player(act, learner.init_carry)


EXPERIMENTS = {
    **{name: (partial(fictitious_play, name), 1) for name in GAMES},
    "self-play": (self_play, 4),
    "league": (league, 2),
}


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
