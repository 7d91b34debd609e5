"""Algorithms beside each other: trainings by their default settings, or those that options of purerl train give.

    python scripts/benchmark.py algorithms r2d2 r2d3 ngu agent57 --env CartPole-v1 --demos FILE
    python scripts/benchmark.py algorithms "ppo --memory gru" --agents 1 512

A ratio is how many times as many frames/s one makes as the first.
"""

import argparse
import shlex
from typing import Any

from workloads import sides, turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "algos", nargs="+", metavar="ALGO", help="algorithms, as purerl train names them, with options in quotes"
    )
    parser.add_argument("--agents", type=int, nargs="+", default=[1], help="agents trained at once (default: 1)")
    parser.add_argument("--env", default="CartPole-v1", help="environment (default: CartPole-v1)")
    parser.add_argument("--demos", help="file of purerl record, for algorithms that learn from one")
    parser.add_argument("--total-steps", type=int, default=50_000, help="frames of an agent (default: 50000)")
    parser.add_argument("--until", type=float, help="also tell the seconds until the mean return is this")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    from purerl.algos import ALGORITHMS

    names = [shlex.split(words)[0] for words in args.algos]
    unknown = [name for name in names if name not in ALGORITHMS]
    if lacking := [name for name in names if name not in unknown and ALGORITHMS[name].required and not args.demos]:
        return f"ALGO {lacking[0]}: needs --demos"
    return f"ALGO {unknown[0]}: must be one of {', '.join(ALGORITHMS)}" if unknown else None


def words(algo: str, agents: int, args: argparse.Namespace) -> str:
    """What follows ``purerl train``: ``algo`` with its options comes last, which count."""
    from purerl.algos import ALGORITHMS

    name, *options = shlex.split(algo)
    sizes = ["--env", args.env, "--total-steps", str(args.total_steps), "--num-seeds", str(agents)]
    data = [word for each in ALGORITHMS[name].required for word in (f"--{each}", args.demos)]
    return shlex.join([name, *sizes, *data, *options])


def job(request: dict[str, Any]) -> turns.Job:
    """Trainings of ``total_steps`` frames each."""
    return sides.training(request)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    rows, (first, *others) = [], args.algos
    for agents in args.agents:
        given = {**request, "until": args.until}
        taking = [sides.ours(words(algo, agents, args), given, name=algo) for algo in args.algos]
        results = turns.measure(taking, args.rounds, args.processes)
        rows.append({"agents": agents, **turns.speeds(results, agents * args.total_steps, f"{agents} agents, ")})
        for name in others:
            rows[-1][name]["ratio"] = turns.ratio(results[first], results[name])
            print(f"{agents} agents, {name} / {first}: {turns.show(rows[-1][name]['ratio'])}", flush=True)
    return rows
