"""Acceptance experiments of curricula, and what they cost.

    NPROC=1 python scripts/curricula.py bandits|learnable|grid|paired [--seeds S]
    NPROC=1 python scripts/curricula.py mazes [--frames F] [--only METHOD,...] [--out FOLDER] [--seeds S]
    JAX_PLATFORMS=cpu python scripts/curricula.py census

`bandits`: which policy each curriculum comes to where levels are not seen. `learnable`: what SFL keeps. `grid`:
CartPole with drawn parameters, learned with each curriculum, played on a grid of them. `mazes`: what is solved of mazes
after a long training with each curriculum; what is interrupted goes on. `paired`: PAIRED on a small maze. `census`:
kernels and bytes of an iteration on a GPU that need not be here, of one agent and of several under
vmap. Prints figures and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, command, few, population, show, sized

from purerl import backend, envs, evaluate, loops, ppo, trees
from purerl.formulas import aggregates
from purerl.runs.reading import levels

sys.path.append(str(Path(__file__).parent.parent / "tests"))
import bandits  # noqa: E402


def regrets(seeds: int) -> None:
    """The least regret in the worst level, of the policy that each curriculum comes to; the least possible is 0.4."""
    env, keys = bandits.minimax_regret(), jax.random.split(jax.random.key(0), seeds)
    robust = {"robust": True}
    trainings = {
        "random levels": bandits.randomised(env),
        "replay": bandits.replaying(env),
        "robust replay": bandits.replaying(env, **robust),
        "robust replay, staleness 0.1": bandits.replaying(env, staleness=0.1, **robust),
        "robust replay, temperature 1": bandits.replaying(env, temperature=1.0, **robust),
        "robust replay by staleness alone": bandits.replaying(env, staleness=1.0, **robust),
        "robust replay, the sign of scores flipped": bandits.replaying(env, score=bandits.of_returns(-1.0), **robust),
    }
    results = {}
    for name, trainer in trainings.items():
        results[name] = np.asarray(jax.vmap(bandits.worst_regret)(bandits.policies(trainer, few(3000, 50), keys)[0]))
        print(f"{name}: regret {results[name].mean():.3f}, from {results[name].min():.3f} to {results[name].max():.3f}")
    claim("random levels: at least 0.95", results["random levels"].min() >= 0.95)
    claim("robust replay: at most 0.45", results["robust replay"].max() <= 0.45)
    claim("with the sign flipped: at least 0.95", results["robust replay, the sign of scores flipped"].min() >= 0.95)


def learnable(seeds: int) -> None:
    """The mean learnability of the levels that SFL keeps, where each is solved with a probability of its own."""
    env = bandits.learnability()
    trainer = bandits.learnable(env, capacity=32, share=0.5, refresh=100, limit=env.design.solved)
    keys = jax.random.split(jax.random.key(0), seeds)
    train = loops.train(trainer, few(100, 4))
    buffer = jax.jit(lambda keys: jax.lax.map(lambda key: train(key).state.curriculum.buffer, keys))
    chance = np.asarray(buffer(keys).levels)
    kept = (chance * (1 - chance)).mean(axis=1)
    error = kept.std(ddof=1) / np.sqrt(seeds)
    print(
        f"kept {kept.mean():.4f} +- {error:.4f}, the most that can be found {bandits.MOST_LEARNABLE:.4f}, drawn 0.1667"
    )
    claim("within 3 standard errors of the optimum", abs(kept.mean() - bandits.MOST_LEARNABLE) <= 3 * error)


CARTS = "length:0.1:2.0,masspole:0.05:1.0,force_mag:3:12,gravity:5:20"
CART = {"num_envs": 16, "num_steps": 512, "num_minibatches": 16, "learning_rate": 1e-3}
CURRICULA: dict[str, dict[str, Any]] = {
    "dr": {},
    "plr": {"level_capacity": 500},
    "robust-plr": {"level_capacity": 500},
    "accel": {"level_capacity": 500, "level_share": 0.89},
    "sfl": {"level_period": 10},
    "paired": {},
}


def grid(seeds: int, frames: int = 300_000) -> None:
    """The mean and the worst tenth of returns on a grid of 5 x 5 x 5 x 5 parameters of CartPole, after as many frames
    with each curriculum."""
    env = envs.make("CartPole-v1", randomise=CARTS)
    ends = [tuple(map(float, each.split(":")[1:])) for each in CARTS.split(",")]
    axes = [np.linspace(low, high, 5, dtype=np.float32) for low, high in ends]
    points = np.array(list(itertools.product(*axes)), np.float32)
    names = [each.partition(":")[0] for each in CARTS.split(",")]
    inner = env.levels(jax.random.key(12345), (len(points),))[1]
    levels = {name: jnp.asarray(points[:, i]) for i, name in enumerate(names)}, inner

    def returns(config: Any) -> np.ndarray:
        trainer = ppo.make_trainer(config, env)

        def train(key: Any) -> Any:
            key_train, key_play = jax.random.split(key)
            state = loops.train(trainer, config.num_iterations)(key_train).state
            policy = trainer.learner.policy(state.learner)
            return evaluate(key_play, env, trainer.learner, policy, len(points), 500, levels).episode_return

        return population(lambda config: train, config, seeds)

    for name, settings in CURRICULA.items():
        config = sized(ppo.Config(**CART, curriculum=name, total_steps=frames, **settings))
        result = returns(config)
        means, worst = result.mean(axis=1), aggregates.worst(result, 0.1)
        spread = lambda x: f"{x.mean():.1f} +- {x.std(ddof=1) / np.sqrt(len(x)):.1f}"
        print(
            f"{name}, {config.num_iterations} iterations: mean {spread(means)}, worst tenth {spread(worst)}",
            flush=True,
        )


MAZES = {
    "dr": "",
    "plr": "",
    "robust-plr": "",
    "accel": "--level-share 0.89",
    "sfl": "--level-period 50",
}
"""The curricula that are tried in mazes, each with its options."""
OF_MAZES = "--env Maze-v0 --preset maze --memory-size 64 --learning-rate 1e-3"
PLAYED = {"held-out": 10, "random:10000:7": 4}
"""The mazes in which policies are tried, and the episodes in each by sampled actions. The most likely actions make the
same episode each time, so one is played."""


def mazes(seeds: int, frames: int = 50_000_000, only: str = "", out: str = "runs/mazes") -> None:
    """The share of mazes that is solved by a policy's most likely actions and by sampled ones, of those that papers
    report on and of 10,000 new ones, with the mean over the worst 1, 5 and 10 % of these."""
    names = only.split(",") if only else list(MAZES)[: few(len(MAZES), 1)]
    for seed, name in itertools.product(range(few(seeds, 1)), names):
        run = Path(out) / f"{name}-{seed}"
        if not (run / "summary.json").exists():
            new = f"train ppo {OF_MAZES} --curriculum {name} {MAZES[name]} --seed {seed}"
            more = ["--total-steps", str(few(frames, 2**14)), "--out", str(run)]
            command(["resume", str(run)] if run.exists() else [*new.split(), *more])
        for (places, episodes), sample in itertools.product(list(PLAYED.items())[: few(2, 1)], (False, True)):
            told = levels.evaluate_in_levels(run, places, episodes if sample else 1, 250, 0, sample=sample)
            worst = ", ".join(f"worst {share} {each[0]:.3f}" for share, each in told["solved_worst"].items())
            how = "sampled" if sample else "most likely"
            print(f"{name}, seed {seed}, {places}, {how}: {told['solved_per_seed'][0]:.4f}, {worst}", flush=True)


SMALL = {
    "num_envs": 32,
    "num_steps": 64,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 1e-3,
    "entropy_coef": 1e-2,
    "memory": "lstm",
    "memory_size": 32,
    "hidden_sizes": (64,),
    "gamma": 0.99,
}


def small(seeds: int, frames: int = 4_000_000) -> None:
    """PAIRED, and random levels for as many frames, in mazes of 7 x 7 cells with 12 walls: regret, and solve rates on
    256 unseen random mazes, over the training in eighths."""
    env = envs.make("Maze-v0", size=7, walls=12, max_steps=60)
    unseen = env.levels(jax.random.key(54321), (256,))
    for name in ("dr", "paired"):
        config = sized(ppo.Config(**SMALL, curriculum=name, total_steps=frames))
        trainer = ppo.make_trainer(config, env)

        def train(key: Any, config: Any = config, trainer: Any = trainer) -> Any:
            def eighth(state: Any, key: Any) -> Any:
                step = lambda state, _: trainer.step(state)
                state, metrics = jax.lax.scan(step, state, None, config.num_iterations // 8)
                policy = trainer.learner.policy(state.learner)
                played = evaluate(key, env, trainer.learner, policy, 256, 60, unseen).episode_return
                regret = metrics.get("regret", jnp.full(1, jnp.nan))
                return state, (jnp.mean(played > 0), jnp.mean(regret))

            return jax.lax.scan(eighth, trainer.init(key), jax.random.split(jax.random.fold_in(key, 1), 8))[1]

        solved, regret = population(lambda config, train=train: train, config, seeds)
        show(f"{name}, solved of unseen mazes", solved)
        if name == "paired":
            show("paired, regret", regret)


def census(seeds: int) -> None:
    """Kernels and bytes that move in an iteration on an H100, with 1024 environments and 1024 levels in the buffer: of
    one agent, and of as many under vmap as there are ``seeds``."""
    from purerl.hardware import absent
    from purerl.population import planning

    place = jax.sharding.SingleDeviceSharding(absent.device("h100"))
    env = envs.make("Maze-v0")
    sizes = {"num_envs": 1024, "num_steps": 256, "num_minibatches": 8, "hidden_sizes": (32,), "total_steps": 10**9}
    for name in CURRICULA:
        settings = {} if name in ("dr", "sfl", "paired") else {"level_capacity": 1024}
        config = ppo.Config(**sizes, curriculum=name, **settings)
        for agents in (1, seeds):
            with backend.tracing_for("gpu"):
                trainer = ppo.make_trainer(config, env)
                init, step = (
                    (trainer.init, trainer.step) if agents == 1 else map(jax.vmap, (trainer.init, trainer.step))
                )
                keys = jax.eval_shape(lambda agents=agents: jax.random.split(jax.random.key(0), agents))
                keys = jax.eval_shape(lambda keys: keys[0], keys) if agents == 1 else keys
                state = trees.shapes(jax.eval_shape(init, keys), place)
                counted = planning.census(jax.jit(step, donate_argnums=0).lower(state))
            frames = agents * trainer.env_steps
            moved = f"{counted.traffic_bytes / frames:.0f} B a frame"
            print(f"{name}, {agents} agent(s): {counted.kernels:,.0f} kernels, {moved}", flush=True)


EXPERIMENTS = {
    "bandits": (regrets, 10),
    "learnable": (learnable, 32),
    "grid": (grid, 8),
    "mazes": (mazes, 3),
    "paired": (small, 3),
    "census": (census, 4),
}


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS, {"census": "jax_cuda12_plugin"})


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
