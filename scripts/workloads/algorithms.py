"""Algorithms beside each other: trainings by their default settings, or those that options of purerl train give.

    python scripts/benchmark.py algorithms r2d2 r2d3 ngu agent57 --env CartPole-v1 --demos FILE
    python scripts/benchmark.py algorithms "ppo --memory gru" --agents 1 512

A ratio is how many times as many frames/s one makes as the first.
"""

import argparse
import shlex
import sys
from typing import Any

from workloads import turns


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
    return f"ALGO {unknown[0]}: must be one of {', '.join(ALGORITHMS)}" if unknown else None


def job(request: dict[str, Any]) -> turns.Job:
    """Trainings of ``total_steps`` frames each."""
    import jax

    import purerl
    from purerl import backend, envs
    from purerl.algos import ALGORITHMS
    from purerl.cli import parsing
    from purerl.runs.describing.options import TrainOptions

    if request["agents"] > 1:
        purerl.use_cpu_cores()
    algo, *words = shlex.split(request["side"])
    sizes = ["--env", request["env"], "--total-steps", str(request["total_steps"])]
    given = parsing.training("train", algo, TrainOptions, [*sizes, *words])
    env = envs.make(given.options.env, **given.options.params)
    algorithm = ALGORITHMS[algo]
    purerl.check(given.config, *algorithm.problems(given.config, env))
    parts = {name: purerl.load_dataset(request[name], env) for name in algorithm.required}
    train = algorithm.make_train(given.config, env, **parts)
    run = turns.of_all(lambda key: train(key).metrics, {**request, "lanes": 0})
    keys = lambda seed: jax.random.split(jax.random.key(seed), request["agents"])

    def lower():
        with backend.precise(given.options.precision):
            return jax.jit(run).lower(keys(0))

    trainer = algorithm.make_trainer(given.config, env, **parts)
    frames = request["agents"] * int(trainer.frames(given.config.num_iterations))
    tally = lambda metrics: turns.of_curve(metrics["episode_return"], request["until"])
    return turns.Job(lower, lambda program, seed: program(keys(seed)), {"frames": frames}, tally)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    given = {name: getattr(args, name) for name in ("env", "demos", "total_steps", "until")}
    rows, (first, *others) = [], args.algos
    for agents in args.agents:
        request = {**request, **given, "agents": agents}
        sides = [turns.Side(name, sys.executable, {**request, "side": name}) for name in args.algos]
        results = turns.measure(sides, args.rounds, args.processes)
        rows.append({"agents": agents, **turns.speeds(results, agents * args.total_steps, f"{agents} agents, ")})
        for name in others:
            rows[-1][name]["ratio"] = turns.ratio(results[first], results[name])
            print(f"{agents} agents, {name} / {first}: {turns.show(rows[-1][name]['ratio'])}", flush=True)
    return rows
