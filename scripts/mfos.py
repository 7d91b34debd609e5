"""Model-free opponent shaping (M-FOS; Lu et al. 2022, arXiv 2205.01447): what shaping learners earns.

    python scripts/reproduce.py mfos --scale full|ci|tiny [--out DIR] [--only PART ...] [OPTIONS of purerl train]

Parts: ``table``, fixed strategies and learners against each other; ``pennies`` and ``dilemma``, PPO in the exact
meta-games against naive learners, and ``hidden``, without a view of the opponent; ``lola``, the dilemma against LOLA;
``self-play``, two shapers that begin against naive learners; ``evolution``, pennies by an evolution strategy; and
``coins``, the coin game with a memory against PPO. Prints what is claimed and whether it holds, and draws the pay-offs
over meta-episodes. A training that was stopped goes on when the same command is given again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, command, failed, few

from purerl import envs, load, trees
from purerl.display import plots
from purerl.envs.native.games.matrix_game import GAMES
from purerl.envs.native.shaping import seats
from purerl.formulas import repeated_games
from purerl.loops.evaluation import Player, player, playing, random_player
from purerl.meta import policies
from purerl.store import log
from purerl.types import Array, Env

STEPS = 100
"""Games of a meta-episode."""
MATRIX = ["--env", "MatrixShaping-v0", "--preset", "mfos"]
PAPER = ["--num-envs", "4096", "--total-steps", str(4096 * STEPS * 1024)]
SMALL = ["--num-envs", "64", "--total-steps", str(64 * STEPS * 400)]
PENNIES = ["--env-params", "game=matching-pennies"]
COINS = ["--env", "purerl.meta.shaping:coin_shaping", "--memory", "gru", "--gamma", "0.995", "--eval-episodes", "8"]
TRAININGS: dict[str, dict[str, list[str]]] = {
    "ci": {
        "pennies": [*MATRIX, *PENNIES, *SMALL],
        "hidden": [*MATRIX, *PENNIES, "hide_opponent=1", *SMALL],
        "dilemma": MATRIX,
        "lola": [*MATRIX, "--env-params", "opponent=lola", *SMALL],
        "self-play": [*MATRIX, "--env-params", "opponent=self", "naive_decrease=0.004", *SMALL]
        + ["--learning-rate-decay", "1"],
        "coins": [*COINS, "--env-params", "lanes=16", "--num-envs", "4", "--num-steps", "256"]
        + ["--total-steps", str(4 * 256 * 100), "--num-minibatches", "4", "--learning-rate", "2e-3"],
    },
    "full": {
        "pennies": [*MATRIX, *PENNIES, *PAPER],
        "hidden": [*MATRIX, *PENNIES, "hide_opponent=1", *PAPER],
        "dilemma": [*MATRIX, *PAPER],
        "lola": [*MATRIX, "--env-params", "opponent=lola", *PAPER],
        "self-play": [*MATRIX, "--env-params", "opponent=self", *PAPER, "--learning-rate", "2e-4"],
        "coins": [*COINS, "--env-params", "lanes=512", "num_epochs=80", "--num-envs", "1", "--num-steps", "256"]
        + ["--total-steps", str(256 * 5000), "--num-epochs", "16", "--learning-rate", "2e-4"],
    },
}
"""Options of `purerl train ppo`, by scale and part."""
PUBLISHED = {
    ("naive", "naive"): (-1.98, -1.98),
    ("lola", "naive"): (-1.30, -1.52),
    ("lola", "lola"): (-1.09, -1.09),
    ("tit-for-tat", "naive"): (-1.01, -1.02),
    ("all-D", "naive"): (-1.98, -2.01),
}
"""Pay-offs per round of both in the dilemma; those of fixed strategies are no publication's, but measured twice."""
FIXED = {"tit-for-tat": [20.0, 20.0, -20.0, 20.0, -20.0], "all-D": [-20.0] * 5}
MOVES: dict[str, Any] = {"naive": repeated_games.naive_step, "lola": repeated_games.lola_step}
NAMES = USUAL = ("table", *TRAININGS["ci"], "evolution")
TINY = ("table", "pennies", "evolution")
"""What runs at scale tiny: the coin game compiles for minutes."""


def main(scale: str, out: Path, only: Sequence[str], more: Sequence[str]) -> None:
    """Runs the parts that ``--only`` names among ``more`` (default: all); the rest of ``more`` are options of the
    trainings. Exits with 1 if a claim fails."""
    for part in only:
        if part == "table":
            table()
        elif part == "evolution":
            evolve(out, scale)
        else:
            train(out / part, ["ppo", *TRAININGS[scale][part], "--num-seeds", "2", *more])
            tell(part, out / part)
    raise SystemExit(bool(failed))


def table(pairs: int = 2048) -> None:
    """Pay-offs per round over meta-episodes of `STEPS` games, of policies that begin standard normal and move at the
    same time."""
    payoffs = jnp.asarray(seats(GAMES["prisoners-dilemma"]))

    def meet(me: str, other: str) -> Array:
        """``[2]``."""

        def move(name: str, own: Array, others: Array, seat: int) -> Array:
            return own if name in FIXED else MOVES[name](own, others, payoffs[seat], 0.96, 1.0)

        def step(both: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            both = move(me, *both, 0), move(other, *both[::-1], 1)
            return both, 0.04 * repeated_games.values(*both, payoffs[0], 0.96)

        def episode(start: Array) -> Array:
            own = jnp.asarray(FIXED[me]) if me in FIXED else start[0]
            return jnp.mean(jax.lax.scan(step, (own, start[1]), None, STEPS)[1], axis=0)

        return jnp.mean(jax.jit(jax.vmap(episode))(jax.random.normal(jax.random.key(0), (pairs, 2, 5))), axis=0)

    for (me, other), published in PUBLISHED.items():
        result = np.asarray(meet(me, other))
        title = f"{me} against {other}: {result[0]:.3f} and {result[1]:.3f}, beside {published[0]} and {published[1]}"
        claim(title, np.abs(result - published).max() <= 0.03)


def train(directory: Path, arguments: Sequence[str]) -> None:
    """``purerl train``, or ``purerl resume`` of what was begun."""
    words = ["train", *arguments, "--out", str(directory)]
    if (directory / "config.json").exists():
        words = ["resume", str(directory), *(["--trust"] if "coin_shaping" in " ".join(arguments) else [])]
    command(words)


def tell(part: str, directory: Path) -> None:
    """What a training ended with: pay-offs of its last meta-episodes, and what its policies earn in fresh ones;
    its pictures; and the claims."""
    rows = list(log.rows(directory / "metrics.jsonl"))
    seeds = sorted({row["seed"] for row in rows})
    ended = [[row for row in rows if row["seed"] == seed and row["episodes"]] for seed in seeds]
    earned = np.array([[row["episode_return"] / row["episode_length"] for row in each] for each in ended])
    plots.curves(
        directory / "pay-offs.png", np.arange(earned.shape[1]), {part: earned}, part, ("meta-episode", "pay-off")
    )
    last = earned[:, -max(1, earned.shape[1] // 20) :].mean(axis=1)
    print(f"{part}: pay-off of the last meta-episodes, a seed each: {' '.join(f'{x:.3f}' for x in last)}", flush=True)
    run = load(directory, trust=True)
    by_step = np.array([payoffs_of(run, i) for i in range(len(seeds))])  # [S, T, 2]
    lines = {"own": by_step[..., 0], "opponent": by_step[..., 1]}
    if part == "coins":
        at_random = in_coins(run.env, random_player(run.env))
        lines |= {"random play": at_random[None, :, 0], "its opponent": at_random[None, :, 1]}
        for name, values in lines.items():
            text = " ".join(f"{x:.2f}" for x in values.mean(axis=0))
            print(f"coins: {name}, pay-off per round in each game of a meta-episode: {text}", flush=True)
    of = "game" if part == "coins" else "step"
    axes = f"{of} of the meta-episode", "pay-off"
    plots.curves(directory / "within.png", np.arange(by_step.shape[1]), lines, part, axes)
    own, other = by_step.mean(axis=1).T
    for seed, pair in enumerate(zip(own, other, strict=True)):
        print(f"{part}, seed {seed}: own {pair[0]:.3f}, opponent {pair[1]:.3f} in fresh meta-episodes", flush=True)
    if part == "pennies":
        claim("pennies: at least 0.45 on every seed", own.min() >= 0.45)
    if part == "hidden":
        claim("hidden: below 0.3 on every seed", own.max() < 0.3)
    if part == "dilemma":
        claim("dilemma: at least -0.65 on every seed, above every fixed strategy", own.min() >= -0.65)


def payoffs_of(run: Any, member: int) -> np.ndarray:
    """Mean pay-offs ``[T, 2]`` of a member's policy and of its opponent, at each step of fresh meta-episodes; in the
    coin game, in each game of them. Shapers that play each other meet no naive learner."""
    whole, params = player(run.learner, trees.take(run.policy, member)), run.saved["env_params"]
    if run.env.num_agents > 2:
        return in_coins(run.env, whole)
    alone = {"naive": 0.0} if params.get("opponent") == "self" else {}
    return in_matrices(
        envs.make(run.saved["env"], **{**params, **alone}), whole, params.get("game", "prisoners-dilemma")
    )


def steps_of(env: Env, whole: Player, num_episodes: int, num_steps: int) -> Any:
    """Steps ``[T, B]`` of ``num_episodes`` under ``whole``."""

    @jax.jit
    def run(key: Any) -> Any:
        begin, move = playing(key, env, whole, num_episodes)
        return jax.lax.scan(lambda table, t: move(table, t)[::2], begin(), jnp.arange(num_steps))[1]

    return jax.device_get(run(jax.random.key(1)))


def in_matrices(env: Env, whole: Player, game: str, num_episodes: int = 512) -> np.ndarray:
    """``[T, 2]``; of a hidden opponent nan."""
    made = steps_of(env, whole, num_episodes, STEPS)
    mine, shown = (x[:, :: env.num_agents] for x in (made.reward, made.next_obs))
    if shown.shape[-1] == 5:
        return np.stack([mine.mean(axis=1), np.full(STEPS, np.nan)], axis=-1)
    payoffs = jnp.asarray(seats(GAMES[game])[0])
    logits = jax.scipy.special.logit(shown)
    value = jax.vmap(jax.vmap(lambda x: 0.04 * repeated_games.values(x[:5], x[5:], payoffs, 0.96)))(logits)
    np.testing.assert_allclose(value[..., 0], mine, atol=1e-3)
    return np.asarray(value.mean(axis=1))


def in_coins(env: Env, whole: Player, num_episodes: int = 4, rounds: int = 16, games: int = 16) -> np.ndarray:
    """``[games, 2]``, per round."""
    made = steps_of(env, whole, num_episodes, rounds * games)
    return made.next_obs["reward"].reshape(games, rounds, -1, 2).mean(axis=(1, 2))


def evolve(directory: Path, scale: str) -> None:
    """Pennies by OpenAI's evolution strategy on the weights of the meta-policy."""
    env = envs.make("MatrixShaping-v0", game="matching-pennies")
    population, episodes, generations = (2048, 128, 64) if scale == "full" else (32, 16, few(150, 2))
    search = policies.of_policies(
        env,
        policies.make_network(env, (32,)),
        population=population,
        num_episodes=episodes,
        max_steps=STEPS,
        sigma=0.3,
        sigma_decay=0.99,
        learning_rate=0.1,
        momentum=0.9,
    )
    run = jax.jit(lambda key: jax.lax.scan(lambda s, _: search.step(s), search.init(key), None, generations))
    results, curves = [], []
    for seed in range(2):
        state, metrics = run(jax.random.key(seed))
        whole = policies.player(env, policies.make_network(env, (32,)), search.mean(state))
        results.append(in_matrices(env, whole, "matching-pennies").mean(axis=0))
        curves.append(np.asarray(metrics["fitness"]) / STEPS)
        print(f"evolution, seed {seed}: own {results[-1][0]:.3f} in fresh meta-episodes", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    axes = "generation", "pay-off, mean of the candidates"
    plots.curves(directory / "evolution.png", np.arange(generations), {"evolution": curves}, "pennies", axes)
    claim("evolution: at least 0.45 on every seed", min(own for own, _ in results) >= 0.45)
