"""Learning curves with kernels of our own and without, and in each precision.

    [JAX_PLATFORMS=cuda] python scripts/kernels.py [ALGO ...] [--seeds 16] [--steps 20000]

Trains small agents on CartPole as they are traced for a GPU: without kernels, with kernels, and in bfloat16. A GPU runs
the kernels; a CPU, which is the default, computes them operation by operation. Prints the mean return of the last
quarter of the training with its 95 % interval over the seeds (bootstrap), and the largest difference from the training
without kernels.
"""

import argparse
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, envs, kernels
from purerl.algos import ALGORITHMS

OURS = kernels.ON if jax.default_backend() == "gpu" else kernels.INTERPRETED
WAYS = {"plain": (kernels.OFF, "auto"), "kernels": (OURS, "auto"), "bfloat16": (kernels.OFF, "bfloat16")}
"""Setting of kernels and precision by the name of the row."""
SMALL = {"num_envs": 4, "num_steps": 64, "hidden_sizes": (16, 16)}
REPLAY = {"num_envs": 4, "num_steps": 8, "hidden_sizes": (16, 16), "warmup_steps": 512, "capacity": 4096}
SETTINGS = {
    "ppo": {**SMALL, "learning_rate": 2e-3},
    "impala": {**SMALL, "learning_rate": 2e-3},
    "dqn": {**REPLAY, "learning_rate": 1e-3, "num_updates": 4, "batch_size": 64},
    "r2d2": {**REPLAY, "learning_rate": 1e-3, "num_updates": 2, "batch_size": 16, "memory_size": 16},
}


def curve(algo: str, way: str, seeds: int, steps: int) -> np.ndarray:
    """Mean return of the episodes of each iteration ``[seeds, iterations]``."""
    setting, precision = WAYS[way]
    algorithm = ALGORITHMS[algo]
    config = algorithm.Config(**SETTINGS[algo], total_steps=steps)
    with backend.tracing_for("gpu"), kernels.using(setting), backend.precise(precision):
        train = jax.jit(jax.vmap(algorithm.make_train(config, envs.make("CartPole-v1"))))
        result = train(jax.random.split(jax.random.key(0), seeds))
    return np.asarray(result.metrics["episode_return"])


def interval(scores: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean, by 10,000 resamplings."""
    draws = np.random.default_rng(0).choice(scores, (10_000, len(scores))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def main() -> None:
    """Prints a row for each algorithm and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algos", nargs="*", default=list(SETTINGS), help=f"{', '.join(SETTINGS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=16, help="trainings (default: 16)")
    parser.add_argument("--steps", type=int, default=20_000, help="frames of each (default: 20000)")
    given = parser.parse_args()
    for algo in given.algos:
        plain = None
        for way in WAYS:
            result = curve(algo, way, given.seeds, given.steps)
            plain = result if plain is None else plain
            scores = np.nanmean(result[:, -result.shape[1] // 4 :], axis=1)
            low, high = interval(scores)
            apart = float(jnp.nanmax(jnp.abs(result - plain)))
            print(f"{algo:<8}{way:<10}{scores.mean():8.1f} [{low:.1f}, {high:.1f}]  apart {apart:.3g}", flush=True)


if __name__ == "__main__":
    main()
