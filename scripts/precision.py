"""Learning curves in each precision of ``--precision``.

    [JAX_PLATFORMS=cuda] python scripts/precision.py [ALGO ...] [--precisions auto bfloat16] [--scale tiny]

Trains small agents on CartPole as they are traced for a GPU, by default on a CPU. Prints the mean return of the last
quarter of the training with its 95 % interval over the seeds (bootstrap), and the largest difference from the first
precision.
"""

import argparse
import os

import jax
import numpy as np
import scales

from purerl import backend, envs
from purerl.algos import ALGORITHMS

SMALL = {"num_envs": 4, "num_steps": 64, "hidden_sizes": (16, 16), "learning_rate": 2e-3}
REPLAY = {**SMALL, "num_steps": 8, "warmup_steps": 512, "capacity": 4096, "learning_rate": 1e-3}
SETTINGS = {
    "ppo": SMALL,
    "impala": SMALL,
    "dqn": {**REPLAY, "num_updates": 4, "batch_size": 64},
    "r2d2": {**REPLAY, "num_updates": 2, "batch_size": 16, "memory_size": 16},
}


def curves(algo: str, precision: str, seeds: int, steps: int) -> np.ndarray:
    """Mean return of the episodes of each iteration ``[seeds, iterations]``."""
    algorithm = ALGORITHMS[algo]
    config = algorithm.Config(**SETTINGS[algo], total_steps=steps)
    with backend.tracing_for("gpu"), backend.precise(precision):
        train = jax.jit(jax.vmap(algorithm.make_train(config, envs.make("CartPole-v1"))))
        return np.asarray(train(jax.random.split(jax.random.key(0), seeds)).metrics["episode_return"])


def interval(scores: np.ndarray) -> np.ndarray:
    """The 95 % interval of the mean, by 10,000 resamplings."""
    means = np.random.default_rng(0).choice(scores, (10_000, len(scores))).mean(axis=1)
    return np.percentile(means, [2.5, 97.5])


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("algos", nargs="*", default=list(SETTINGS), help=f"{', '.join(SETTINGS)} (default: all)")
    result.add_argument("--precisions", nargs="+", choices=backend.MATRIX_PRECISION, default=["auto", "bfloat16"])
    result.add_argument("--seeds", type=int, default=16, help="seeds of each (default: 16)")
    result.add_argument("--frames", type=int, default=20_000, help="frames of each seed (default: 20000)")
    scales.add(result, seeds=2, frames=1024)
    return result


def main() -> None:
    """Prints a row for each algorithm and precision."""
    given = parser().parse_args()
    jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS") or "cpu")
    for algo in given.algos:
        made = [curves(algo, precision, given.seeds, given.frames) for precision in given.precisions]
        for precision, curve in zip(given.precisions, made, strict=True):
            scores = np.nanmean(curve[:, -curve.shape[1] // 4 :], axis=1)
            low, high = interval(scores)
            estimate = f"{scores.mean():8.1f} [{low:.1f}, {high:.1f}]"
            print(f"{algo:<8}{precision:<10}{estimate}  apart {np.nanmax(np.abs(curve - made[0])):.3g}", flush=True)


if __name__ == "__main__":
    main()
