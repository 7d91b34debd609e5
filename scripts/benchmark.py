"""Speed beside a peer, by turns: whole trainings in frames/s, replay buffers in microseconds a step. purerl's side of a
training is what ``purerl benchmark`` measures of purerl alone.

    python scripts/benchmark.py ppo-cartpole --agents 1 64 --peer purejaxrl=CHECKOUT --peer-python PYTHON
    python scripts/benchmark.py ppo-hopper --peer purejaxrl=CHECKOUT --peer-python PYTHON
    python scripts/benchmark.py dqn-cartpole --agents 1 16 --peer rejax --peer-python PYTHON
    python scripts/benchmark.py dqn-minatar --agents 1 16 --peer rejax --peer-python PYTHON
    python scripts/benchmark.py sac-pendulum --agents 1 16 --peer rejax --peer-python PYTHON
    python scripts/benchmark.py ippo-spread --teams 1 16 --peer jaxmarl=CHECKOUT --peer-python PYTHON
    python scripts/benchmark.py value-loss-evolution --candidates 64 --peer purejaxrl=CHECKOUT --peer-python PYTHON
    python scripts/benchmark.py environments Breakout-MinAtar gymnax/Breakout-MinAtar
    python scripts/benchmark.py algorithms r2d2 ngu agent57 "ppo --memory gru" --agents 1 64
    python scripts/benchmark.py profile --agents 2048
    python scripts/benchmark.py logging --agents 1 1000
    python scripts/benchmark.py host-cartpole --rounds 1 --peer sb3-dummy=PYTHON --peer cleanrl=PYTHON,CHECKOUT
    python scripts/benchmark.py host-pong --rounds 1 --peer cleanrl=PYTHON,CHECKOUT
    python scripts/benchmark.py host-pendulum --rounds 1 --peer sbx-sac=PYTHON
    python scripts/benchmark.py options "ppo --env A ..." "ppo --env B ..." --rounds 1
    python scripts/benchmark.py replay --sizes 1e5 1e6 --batch 256 --peer flashbax --peer-python PYTHON
    python scripts/benchmark.py search --games 1 64 --simulations 32
    python scripts/benchmark.py offline --rounds 2 --peer unifloral=CHECKOUT
    python scripts/benchmark.py search --env pgx/connect_four --games 64 --peer pgx=CHECKOUT --peer-python PYTHON

Each process count is a fresh set of interpreters, one for each side (whose versions clash: the peers need gymnax
0.0.9), which compute by turns in rounds with a new seed each; only one computes at a time. A ratio is taken within a
round, then the median over rounds is a process's figure, and the median over processes is reported with its range.
Compiling is timed apart, and warm-ups come first. Frames are environment steps.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scales
from workloads import (
    algorithms,
    dqn,
    environments,
    hosts,
    logs,
    meta,
    offline,
    options,
    planner,
    ppo,
    profile,
    replay,
    sac,
    teams,
    turns,
)

WORKLOADS = {
    "ppo-cartpole": ppo,
    "ppo-hopper": ppo,
    "dqn-cartpole": dqn,
    "dqn-minatar": dqn,
    "sac-pendulum": sac,
    "ippo-spread": teams,
    "vdn-spread": teams,
    "qmix-spread": teams,
    "environments": environments,
    "algorithms": algorithms,
    "logging": logs,
    "profile": profile,
    "replay": replay,
    "value-loss-evolution": meta,
    "host-cartpole": hosts,
    "host-pong": hosts,
    "host-pendulum": hosts,
    "options": options,
    "search": planner,
    "offline": offline,
}


SMALL = "--num-steps 16 --hidden-sizes 8"
NARROW = "--hidden-sizes 8 --batch-size 8"
TINY: dict[str, dict[str, Any]] = {
    "ppo-cartpole": {"total_steps": 2048},
    "ppo-hopper": {"needs": "brax", "total_steps": 65_536},
    "profile": {"agents": 2, "total_steps": 2048},
    "dqn-cartpole": {"total_steps": 4096},
    "environments": {"words": ["CartPole-v1", "Catch-bsuite"], "total_steps": 6400},
    "algorithms": {"words": ["a2c", "reinforce"], "total_steps": 2048},
    "logging": {"agents": [2], "frames": 8192},
    "replay": {"sizes": [1600]},
    "value-loss-evolution": {"candidates": [2], "total_steps": 1024},
    "dqn-minatar": {"total_steps": 1504},
    "search": {"games": [4], "simulations": 8, "moves": 4},
    "offline": {"rows": 1000, "updates": 4},
    "ippo-spread": {"needs": "jaxmarl", "total_steps": 4096},
    "vdn-spread": {"needs": "jaxmarl", "total_steps": 20_800},
    "qmix-spread": {"needs": "jaxmarl", "total_steps": 20_800},
    "sac-pendulum": {"total_steps": 1500},
    "host-cartpole": {"needs": "gymnasium", "total_steps": 20_480, "options": f"{hosts.OURS['host-cartpole']} {SMALL}"},
    "host-pong": {"needs": "envpool", "total_steps": 4096},
    "host-pendulum": {"needs": "gymnasium", "total_steps": 1000, "options": f"{hosts.OURS['host-pendulum']} {NARROW}"},
    "options": {"words": [f"{name} --env CartPole-v1 --num-envs 4 {SMALL}" for name in ("a2c", "reinforce")]}
    | {"total_steps": 4096},
}
"""Of `scales.add`, by workload."""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    workloads = result.add_subparsers(dest="workload", metavar="WORKLOAD", required=True)
    for name, module in WORKLOADS.items():
        sub = workloads.add_parser(name, description=module.__doc__, help=module.__doc__.splitlines()[0])
        module.add_arguments(sub)
        sub.add_argument("--rounds", type=int, default=7, help="turns of each side in a process (default: 7)")
        sub.add_argument("--processes", type=int, default=5, help="fresh processes of each side (default: 5)")
        sub.add_argument("--warmups", type=int, default=2, help="runs before the first that is timed (default: 2)")
        sub.add_argument(
            "--peer-python",
            default=sys.executable,
            help="interpreter that has the peer and what it needs, or the folder of packages in which they are",
        )
        sub.add_argument("--json", type=Path, help="write all figures here")
        scales.add(sub, rounds=1, processes=1, warmups=0, **TINY.get(name, {}))
    return result


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads a command line, by default that of this process."""
    args = parser().parse_args(words)
    problem = WORKLOADS[args.workload].problem(args)
    if problem:
        parser().error(problem)
    return args


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a workload, which it also prints."""
    try:
        return WORKLOADS[args.workload].run(args, {"workload": args.workload, "warmups": args.warmups})
    except turns.Failed as failed:
        raise SystemExit("\n".join([*failed.lines, str(failed)])) from None


def main() -> None:
    args = arguments()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.2f}")
    print(f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}; median [lowest, highest] of {args.processes} processes")
    rows = measured(args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        request = json.loads(sys.argv[2])
        turns.serve(WORKLOADS[request["workload"]].job, request)
    else:
        main()
