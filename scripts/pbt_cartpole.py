"""Population-based training of PPO on CartPole, beside the same members left alone (random search).

    python scripts/pbt_cartpole.py

First all members start with a learning rate a thousand times too small; then with rates drawn log-uniformly. Prints, a
row for each seed, the median and the best member's return in the last interval.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import scales

from purerl import envs, population, ppo, use_cpu_cores
from purerl.population import selection

TOO_SMALL = ppo.Config().learning_rate / 1000


def compare(seeds: int, title: str, size: int, num_intervals: int, num_iterations: int, rates) -> None:
    """``rates(key) -> [size]`` are the first learning rates."""
    env = envs.make("CartPole-v1")

    def program(**parts):
        train = selection.population_based_training(
            lambda config: ppo.make_trainer(config, env),
            size,
            num_intervals=num_intervals,
            num_iterations=num_iterations,
            explore=selection.perturb(learning_rate=(1e-7, 1e-1)),
            **parts,
        )
        return jax.jit(train)

    programs = {"PBT": program(), "left alone": program(exploit=lambda key, scores: jnp.arange(size))}
    print(f"{title}: {size} members, {num_intervals} intervals of {num_iterations} iterations")
    for seed in range(seeds):
        key_rates, key_members, key = jax.random.split(jax.random.key(seed), 3)
        total_steps = 512 * num_iterations * num_intervals
        config = ppo.Config(total_steps=total_steps, learning_rate=rates(key_rates), learning_rate_decay=0.0)
        members = population.members(config, jax.random.split(key_members, size))
        for name, train in programs.items():
            result = train(key, members)
            last, used = np.asarray(result.fitness[-1]), np.asarray(result.given["config"].learning_rate[-1])
            print(
                f"  seed {seed}, {name}: median {np.median(last):.1f}, best {last.max():.1f}, "
                f"median learning rate {np.median(used):.1e}",
                flush=True,
            )


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--seeds", type=int, default=3, help="searches of each kind (default: 3)")
    result.add_argument("--intervals", type=int, help="intervals of a search (default: 20, or 10 with rates at random)")
    scales.add(result, seeds=1, intervals=2)
    return result


if __name__ == "__main__":
    given = parser().parse_args()
    use_cpu_cores()
    compare(given.seeds, "a thousandth of the rate", 16, given.intervals or 20, 24, lambda key: jnp.full(16, TOO_SMALL))
    low, high = np.log(1e-5), np.log(1e-1)
    drawn = lambda key: jnp.exp(jax.random.uniform(key, (8,), minval=low, maxval=high))
    compare(given.seeds, "rates at random", 8, given.intervals or 10, 40, drawn)
