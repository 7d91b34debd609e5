"""Trainings on environments of the host, beside Stable-Baselines3, SBX, Sample Factory 2 and CleanRL's scripts.

    python scripts/benchmark.py host-cartpole --rounds 1 --peer sb3-dummy=PYTHON --peer sb3-subproc=PYTHON \\
        --peer sample-factory=PYTHON --peer cleanrl=PYTHON,CHECKOUT
    python scripts/benchmark.py host-pong --rounds 1 --peer cleanrl=PYTHON,CHECKOUT
    python scripts/benchmark.py host-pendulum --rounds 1 --peer sbx-sac=PYTHON

A run is a whole training of the command line or of the peer's public interface, in processes of its own. Frames/s are
those of steady state: by the clock from a tenth of the frames to nine tenths, so that neither starting, nor compiling,
nor saving is in them. A ratio is how many times as many purerl makes.
"""

import argparse
from pathlib import Path
from typing import Any

from workloads import host_peers, named, sides, turns

OURS = {
    "host-cartpole": named.HOST_CARTPOLE,
    "host-pendulum": "sac --env gymnasium/Pendulum-v1 --preset mujoco --warmup-steps 100",
    "host-pong": "ppo --env envpool/Pong-v5 --env-params atari=1 life_loss=1 frame_stack=4 reward_clip=1 --num-envs 8"
    " --clip-epsilon 0.1 --torso nature --hidden-sizes 512 --activation relu",
}
"""What follows ``purerl train`` by workload; --options replaces it."""
FRAMES = {"host-cartpole": 64 * 128 * 60, "host-pong": 8 * 128 * 20, "host-pendulum": 10_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help=f"a peer and the interpreter that has it; {', '.join([*host_peers.CARTPOLE, *host_peers.PENDULUM])}, "
        "cleanrl=PYTHON,CHECKOUT",
    )
    parser.add_argument(
        "--peer-threads", type=int, default=0, help="threads of PyTorch's CPU (default: its own choice)"
    )
    parser.add_argument(
        "--total-steps",
        type=int,
        default=0,
        help="frames of a run (default: those of 60 iterations of PPO, in Pong of 20, in Pendulum 10,000)",
    )
    parser.add_argument("--options", help="what follows purerl train, instead of this workload's")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    known = host_peers.PEERS[args.workload]
    for peer in args.peer:
        name, _, where = peer.partition("=")
        if name not in known:
            return f"--peer {peer}: {args.workload} has {', '.join(known)}"
        if (name == "cleanrl") != ("," in where):
            return f"--peer {peer}: must be cleanrl=PYTHON,CHECKOUT, or NAME=PYTHON of another"
    return None


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of purerl's or of a peer's."""
    if request["side"] == "purerl":
        return training(request)
    total, peer = request["total_steps"], host_peers.PEERS[request["workload"]][request["side"]]
    return turns.windowed(lambda seed: peer(total, seed, request["checkout"]), total, {"shares": {}})


def training(request: dict[str, Any]) -> turns.Job:
    """``purerl train`` as a person runs it, in a process of its own."""
    from purerl.benchmarks import trainings

    return trainings.hosted_job(request["options"], request["total_steps"])


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints all sides."""
    total = args.total_steps or FRAMES[args.workload]
    request = {**request, "total_steps": total}
    options = args.options if args.options is not None else OURS[args.workload]
    taking = [sides.ours(options, request)]
    threads = {"OMP_NUM_THREADS": str(args.peer_threads)} if args.peer_threads else {}
    for peer in args.peer:
        name, _, where = peer.partition("=")
        python, _, checkout = where.partition(",")
        theirs = {**request, "side": name, "checkout": str(Path(checkout).resolve())}
        taking.append(sides.side(name, python, theirs, threads))
    results = turns.measure(taking, args.rounds, args.processes)
    return [{"options": options, **compare(results, "purerl", turns.Window.of(total).frames)}]


def compare(results: dict[str, list[dict[str, Any]]], first: str, frames: int) -> dict[str, Any]:
    """Frames/s and CPU time of each side, and how many times as many frames/s ``first`` makes. Prints them."""
    row: dict[str, Any] = {}
    for name, processes in results.items():
        speed = turns.spread([frames / seconds for seconds in turns.seconds(processes)])
        runs = [turn for process in processes for turn in process["rounds"]]
        cores = turns.spread([turn["cores"] for turn in runs])
        shares = {part: turns.spread([turn["shares"][part] for turn in runs]) for part in runs[0]["shares"]}
        row[name] = {"frames_per_second": speed, "cores": cores, "shares": shares}
        print(f"{name}: {turns.show(speed, ',.0f')} frames/s, cores {turns.show(cores)}", flush=True)
        for part, share in shares.items():
            print(f"  {part}: {turns.show(share)}", flush=True)
    for name in results:
        if name != first:
            row[name]["ratio"] = turns.ratio(results[name], results[first])
            print(f"{first} / {name}: {turns.show(row[name]['ratio'])}", flush=True)
    return row
