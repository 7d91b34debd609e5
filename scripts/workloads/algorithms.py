"""Algorithms beside each other: trainings of one agent in the same environment, by their default settings.

    python scripts/benchmark.py algorithms r2d2 r2d3 ngu agent57 --env CartPole-v1 --demos FILE

A ratio is how many times as many frames/s one makes as the first.
"""

import argparse
import sys
from typing import Any

from workloads import turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algos", nargs="+", metavar="ALGO", help="algorithms, as purerl train names them")
    parser.add_argument("--env", default="CartPole-v1", help="environment (default: CartPole-v1)")
    parser.add_argument("--demos", help="file of purerl record, for algorithms that learn from one")
    parser.add_argument("--total-steps", type=int, default=50_000, help="frames of a run (default: 50000)")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    return None if len(args.algos) > 1 else "ALGO: needs two of them"


def job(request: dict[str, Any]) -> turns.Job:
    """A training of ``total_steps`` frames."""
    import jax

    import purerl
    from purerl import envs

    env, algo = envs.make(request["env"]), request["side"]
    datasets = getattr(purerl, algo.replace("-", "_")).datasets
    parts = {name: purerl.load_dataset(request[name], env) for name in datasets}
    run, key = turns.training(algo, env, request, **parts), jax.random.key
    return turns.Job(lambda: jax.jit(run).lower(key(0)), lambda program, seed: program(key(seed)))


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints all."""
    given = {name: getattr(args, name) for name in ("env", "demos", "total_steps")}
    sides = [
        turns.Side(name, sys.executable, {**request, **given, "preset": None, "side": name}) for name in args.algos
    ]
    results = turns.measure(sides, args.rounds, args.processes)
    first, *others = args.algos
    row = turns.speeds(results, args.total_steps)
    for name in others:
        row[name]["ratio"] = turns.ratio(results[first], results[name])
        print(f"{name} / {first}: {turns.show(row[name]['ratio'])}", flush=True)
    return [row]
