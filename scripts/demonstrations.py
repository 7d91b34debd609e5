"""Acceptance experiments of learning from demonstrations, each against a threshold that a wrong build misses.

    python scripts/demonstrations.py corridor|mixing [--seeds S]

Prints figures a line for each seed, and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
import math
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, few, population, show
from players import expert, hesitant

from purerl import envs, evaluate, r2d2, r2d3, record, replay
from purerl.learners.parts import settings
from purerl.networks import ACTIVATIONS, memory
from purerl.networks.recurrent import recurrent
from purerl.networks.value_networks import Streams
from purerl.types import Array, Env, Key, PyTree, Transition

CORRIDOR = {
    "total_steps": 16 * 8 * 960 + 1_024,
    "num_envs": 16,
    "num_steps": 8,
    "num_updates": 2,
    "batch_size": 32,
    "burn_in": 4,
    "unroll": 18,
    "period": 8,
    "capacity": 124_000,
    "warmup_steps": 1_024,
    "memory": "gru",
    "memory_size": 32,
    "hidden_sizes": (32, 32),
    "learning_rate": 1e-3,
    "target_period": 50,
    "gamma": 0.99,
}
"""960 iterations of 2 updates, sequences of 22 steps."""
EPISODES, TRIALS = 20, 400
"""Demonstrations; and episodes of somebody who errs now and then."""


def without_memory(config: Any, env: Env) -> Any:
    """R2D2's network with nothing between torso and head."""
    torso = settings.make_torso(config, env, config.hidden_sizes[:-1])
    head = Streams(env.action_space.n, config.hidden_sizes[-1], ACTIVATIONS[config.activation], config.dueling)
    return recurrent(torso, memory.forgetful(), head)


def corridor(seeds: int) -> None:
    """R2D3, R2D2, R2D3 without memory, and R2D3 from recorded play alone."""
    env, parts = envs.make("CueCorridor-v0"), few(24, 8)  # after which greedy play is looked at
    demos = record(jax.random.key(0), env, expert(env), EPISODES)
    claim(f"{EPISODES} demonstrations are worth 1 each", np.sum(demos.reward) == EPISODES)

    def trained(title: str, algo: Any, config: Any, **given: Any) -> np.ndarray:
        """Greedy returns ``[S]`` at the end, and the way there in print."""

        def make_train(config: Any) -> Any:
            trainer = algo.make_trainer(config, env, **given)

            def train(key: Key) -> Array:
                key_train, key_play = jax.random.split(key)

                def part(state: PyTree, key: Key) -> tuple[PyTree, Array]:
                    state, _ = jax.lax.scan(lambda s, _: trainer.step(s), state, None, config.num_iterations // parts)
                    played = evaluate(key, env, trainer.learner, trainer.learner.policy(state.learner), 500)
                    return state, jnp.mean(played.episode_return)

                return jax.lax.scan(part, trainer.init(key_train), jax.random.split(key_play, parts))[1]

            return train

        result = population(make_train, config, seeds)
        show(f"{title}, greedy return as it learns", result)
        return np.asarray(result[:, -1])

    final = {}
    for ratio in (1 / 4, 1 / 16):
        title = f"R2D3, demo ratio 1/{1 / ratio:g}"
        final[ratio] = trained(title, r2d3, r2d3.Config(**CORRIDOR, demo_ratio=ratio), demos=demos)
        claim(f"{title}: at least 0.9 on every seed", final[ratio].min() >= 0.9)
    result = trained("R2D2", r2d2, r2d2.Config(**CORRIDOR))
    claim("R2D2: at most 0.05 on every seed", result.max() <= 0.05)
    config = r2d3.Config(**CORRIDOR, demo_ratio=1 / 4)
    result = trained("R2D3 without memory", r2d3, config, demos=demos, network=without_memory(config, env))
    claim("R2D3 without memory: at most 0.6 on every seed", result.max() <= 0.6)
    alone = r2d3.Config(**CORRIDOR, demo_ratio=1.0)
    result = trained("R2D3 from demonstrations alone", r2d3, alone, demos=demos)
    gap = result.mean() - min(final[ratio].mean() for ratio in final)
    claim(f"R2D3 from demonstrations alone ends no higher: by {gap:.2f}", gap <= 0.02)
    trials = record(jax.random.key(0), env, hesitant(env), TRIALS)
    result = trained("R2D3 from play with mistakes alone", r2d3, alone, demos=trials)
    claim("R2D3 from play with mistakes alone, which tells what is wrong: at least 0.9", result.min() >= 0.9)


def mixing(seeds: int) -> None:
    """The part of a batch that comes from demonstrations, of 100 batches of 64, beside a binomial distribution."""
    env = envs.make("CueCorridor-v0")
    demos = record(jax.random.key(0), env, expert(env), EPISODES)
    view = replay.sequences(8, 4)
    step = Transition(
        jnp.zeros((4, 2, 17)),
        jnp.zeros((4, 2), jnp.int32),
        *jnp.zeros((1, 4, 2)),
        *[jnp.zeros((4, 2), bool)] * 2,
        jnp.zeros((4, 2, 17)),
        (),
    )
    for ratio in (1 / 4, 1 / 16, 1 / 256):
        agent = replay.weighted(num_rows=32, num_envs=2, batch_size=64, view=view, alpha=0.9)
        both = replay.mixed(agent, replay.fixed(demos, batch_size=64, view=view, alpha=0.9), ratio, 2)

        def count(key: Key, both: Any = both) -> Array:
            state = both.init(jax.tree.map(lambda x: x[0, 0], step))
            for _ in range(8):
                state = both.add(state, step)
            return jnp.sum(both.sample(state, key).env >= 2)

        total = 6400
        for seed in range(seeds):
            drawn = int(jnp.sum(jax.jit(jax.vmap(count))(jax.random.split(jax.random.key(seed), 100))))
            off = (drawn - total * ratio) / math.sqrt(total * ratio * (1 - ratio))
            claim(f"ratio 1/{1 / ratio:g}, seed {seed}: {drawn} of {total}, {off:+.2f} sigma", abs(off) <= 3)


EXPERIMENTS = {
    "corridor": (corridor, 2),
    "mixing": (mixing, 3),
}
"""What runs, and on how many seeds."""


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
