"""Acceptance experiments of learning what is new, each against a threshold that a wrong build misses.

    NPROC=1 python scripts/exploration.py grid|sea|bandit|pair|bonus [--seeds S]

Prints figures a line for each seed, and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, population, show

from purerl import agent57, dqn, envs, evaluate, ngu, ppo
from purerl.envs.fleet import fleet
from purerl.formulas import bandits
from purerl.loops.rollout import init_actors, rollout
from purerl.types import Array, Env, Key, Learner, PyTree

FEED_FORWARD = {"memory": "none", "burn_in": 0, "num_envs": 16, "learning_rate_decay": 0.0}


def cells_seen(key: Key, env: Env, learner: Learner, behaviour: PyTree, steps: int, rows: int = 64) -> Array:
    """Different cells of a grid that each of so many rows sees in one episode without a random action. ``[rows]``."""
    careful = learner._replace(noise=lambda key, shape: (jnp.ones((*shape, 4)), learner.noise(key, shape)[1]))
    many = fleet(env, rows)
    actors = init_actors(key, many, careful)
    _, trajectory, _ = rollout(key, many, careful, behaviour, actors, steps)
    shown = jnp.concatenate([trajectory.obs[:1], trajectory.next_obs])
    place = jnp.argmax(shown[..., :9], axis=-1) * 9 + jnp.argmax(shown[..., 9:18], axis=-1)
    return jnp.sum(jnp.any(jax.nn.one_hot(place, 81, dtype=bool), axis=0), axis=-1)


GRID = FEED_FORWARD | {
    "total_steps": 192_000,
    "num_steps": 8,
    "num_updates": 4,
    "batch_size": 32,
    "period": 4,
    "unroll": 9,
    "capacity": 50_000,
    "warmup_steps": 2_560,
    "target_period": 100,
    "learning_rate": 1e-3,
    "gamma": 0.97,
    "gamma_end": 0.97,
    "num_policies": 2,
    "episode_memory": 40,
    "hidden_sizes": (64, 64),
    "novelty_steps": 5,
}


def explored(config: Any, env: Env, seeds: int) -> np.ndarray:
    """Cells that the policy that seeks the most sees in an episode after a training, on average ``[S]``."""

    def make_train(config: Any):
        trainer = ngu.make_trainer(config, env)

        def train(key: Key) -> Array:
            key_train, key_play = jax.random.split(key)
            start = trainer.init(key_train)
            state, _ = jax.lax.scan(lambda s, _: trainer.step(s), start, None, config.num_iterations)
            return jnp.mean(
                cells_seen(key_play, env, trainer.learner, trainer.learner.behaviour(state.learner), 40)[1::2]
            )

        return train

    return population(make_train, config, seeds)


def grid(seeds: int) -> None:
    """Cells of a grid without rewards that the policy that seeks novelty sees in an episode of 40 steps."""
    results = {}
    for title, change in {
        "NGU": {},
        "distances between observations": {"embedding": "observations"},
        "distillation alone": {"novelty": "lifelong"},
    }.items():
        results[title] = explored(ngu.Config(**GRID | change), envs.make("NoisyGrid-v0"), seeds)
        show(f"{title}, cells", results[title])
    whole, raw, alone = (np.mean(x) for x in (results.values()))
    claim("NGU: at least 32 cells on average", whole >= 32)
    claim("distances between observations: at least 4 fewer", raw <= whole - 4)
    claim("distillation alone: at most 20", alone <= 20)


SEA = FEED_FORWARD | {
    "total_steps": 48_640,
    "num_steps": 10,
    "num_updates": 8,
    "batch_size": 32,
    "period": 5,
    "unroll": 11,
    "capacity": 48_640,
    "warmup_steps": 640,
    "target_period": 50,
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "gamma_end": 0.97,
    "num_policies": 8,
    "novelty": "lifelong",
    "hidden_sizes": (64, 64),
}
DITHERING = {
    **{name: SEA[name] for name in ("total_steps", "num_envs", "num_steps", "num_updates", "capacity", "warmup_steps")},
    **{name: SEA[name] for name in ("target_period", "learning_rate", "learning_rate_decay", "gamma", "hidden_sizes")},
    "batch_size": 320,
    "n_step": 1,
    "epsilon_start": 0.4,
    "epsilon_end": 0.4,
    "epsilon_ladder": 7.0,
}


def greedy(algo: Any, config: Any, env: Env, seeds: int) -> np.ndarray:
    """Greedy returns ``[S, 8]`` after each eighth of a training."""

    def make_train(config: Any):
        trainer = algo.make_trainer(config, env)

        def train(key: Key) -> Array:
            key_train, key_play = jax.random.split(key)

            def eighth(state: PyTree, key: Key):
                state, _ = jax.lax.scan(lambda s, _: trainer.step(s), state, None, config.num_iterations // 8)
                policy = trainer.learner.policy(state.learner)
                return state, jnp.mean(evaluate(key, env, trainer.learner, policy, 16, 100).episode_return)

            return jax.lax.scan(eighth, trainer.init(key_train), jax.random.split(key_play, 8))[1]

        return train

    return population(make_train, config, seeds)


def enough(result: np.ndarray) -> np.ndarray:
    """Which seeds end with a greedy return of at least 0.9. ``[S]``."""
    return result[:, -1] >= 0.9


def sea(seeds: int, depth: int = 10) -> None:
    """NGU by what is new at all, and DQN with a ladder of epsilons, in a sea of 10 rows."""
    env = envs.make("DeepSea-v0", depth=depth)
    result = greedy(ngu, ngu.Config(**SEA), env, seeds)
    show("NGU, greedy return after each eighth", result)
    claim("NGU: at least 0.9 in the end on 3 of 4 seeds", enough(result).mean() >= 0.75)
    result = greedy(dqn, dqn.Config(**DITHERING), env, seeds)
    show("DQN, greedy return after each eighth", result)
    claim("DQN: at least 0.9 in the end on no seed", not enough(result).any())


BONUS = {
    "total_steps": 240_000,
    "num_envs": 16,
    "num_steps": 60,
    "num_minibatches": 4,
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.0,
    "entropy_coef": 0.02,
    "hidden_sizes": (64,),
}


def bonus(seeds: int, depth: int = 20) -> None:
    """PPO with and without random network distillation in a sea of 20 rows."""
    env = envs.make("DeepSea-v0", depth=depth)
    result = greedy(ppo, ppo.Config(**BONUS), env, seeds)
    show("PPO, greedy return after each eighth", result)
    claim("PPO: at least 0.9 in the end on no seed", not enough(result).any())
    result = greedy(ppo, ppo.Config(**BONUS, intrinsic="rnd"), env, seeds)
    show("PPO with distillation, greedy return after each eighth", result)
    claim("PPO with distillation: at least 0.9 in the end on 3 of 4 seeds", enough(result).mean() >= 0.75)


PAIR = SEA | {
    "novelty": "both",
    "embedding": "observations",
    "episode_memory": 10,
    "gamma_middle": 0.99,
    "bandit_width": 0.05,
}


def choosing(config: Any, env: Env, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Greedy returns ``[S, 8]`` after each eighth of a training of Agent57, and how often in it the actors' bandits
    would have chosen each policy without chance, as shares ``[S, 8, N]``."""

    def make_train(config: Any):
        trainer = agent57.make_trainer(config, env)
        learner, num = trainer.learner, config.num_policies

        def choices(control: bandits.Pulls) -> Array:
            best = jnp.argmax(bandits.bounds(control, num, config.bandit_width))
            return jax.nn.one_hot(best, num) * (control.number >= num)

        def train(key: Key):
            key_train, key_play = jax.random.split(key)

            def step(state: PyTree, _: None):
                state, _ = trainer.step(state)
                return state, jnp.sum(jax.vmap(choices)(state.actors.carry.control), axis=0)

            def eighth(state: PyTree, key: Key):
                state, chosen = jax.lax.scan(step, state, None, config.num_iterations // 8)
                total = jnp.sum(chosen, axis=0)
                played = evaluate(key, env, learner, learner.policy(state.learner), 64, 100)
                return state, (jnp.mean(played.episode_return), total / jnp.maximum(jnp.sum(total), 1))

            return jax.lax.scan(eighth, trainer.init(key_train), jax.random.split(key_play, 8))[1]

        return train

    return population(make_train, config, seeds)


def pair(seeds: int) -> None:
    """Agent57 with the same settings where novelty is needed, in a sea of 10 rows, and where it is not, in Catch:
    greedy returns, and which policies its bandits would choose without chance."""
    shares = {}
    for name in ("DeepSea-v0", "Catch-bsuite"):
        result, chosen = choosing(agent57.Config(**PAIR), envs.make(name), seeds)
        show(f"{name}, greedy return after each eighth", result)
        half = chosen.shape[-1] // 2
        shares[name] = chosen[..., half:].sum(axis=-1), chosen[..., :2].sum(axis=-1)
        show(f"{name}, share of the upper half of the policies in each eighth", shares[name][0])
        show(f"{name}, share of the lowest two", shares[name][1])
        claim(f"{name}: at least 0.9 in the end on every seed", result[:, -1].min() >= 0.9)
    early, late = shares["DeepSea-v0"][0][:, :2].mean(), shares["Catch-bsuite"][1][:, -2:].mean()
    claim("DeepSea-v0: at least 0.6 of the choices of the first quarter are of the upper half", early >= 0.6)
    claim("Catch-bsuite: at least 0.6 of the choices of the last quarter are of the lowest two", late >= 0.6)


EXPERIMENTS = {"grid": (grid, 3), "sea": (sea, 8), "pair": (pair, 4), "bonus": (bonus, 8)}


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
