"""Two sets of options of ``purerl train`` beside each other, such as with and without double buffering.

    python scripts/benchmark.py options --rounds 1 --total-steps 20000 \\
        "ppo --env slow_env:make --env-params delay=0.004 --num-envs 8 --workers none" \\
        "ppo --env slow_env:make --env-params delay=0.004 --num-envs 8 --workers 2"

A run is a whole training in a process of its own, timed in steady state as by `workloads.hosts`. The ratio is how many
times as many frames/s the second set makes. Modules of scripts/workloads, such as `slow_env`, are found.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from workloads import hosts, sides, turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("options", nargs=2, metavar="OPTIONS", help="what follows purerl train, in quotes")
    parser.add_argument("--total-steps", type=int, default=100_000, help="frames of a run (default: 100000)")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    return None


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training, timed in steady state."""
    return hosts.training(request)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints both."""
    request = {**request, "total_steps": args.total_steps}
    result = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    taking = [
        sides.side(name, sys.executable, {**request, "options": shlex.split(options)}, result)
        for name, options in zip(("first", "second"), args.options, strict=True)
    ]
    results = turns.measure(taking, args.rounds, args.processes)
    return [{"options": args.options, **hosts.compare(results, "second", turns.Window.of(args.total_steps).frames)}]
