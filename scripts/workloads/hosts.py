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
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from workloads import host_peers, turns

OURS = {
    "host-cartpole": "ppo --env gymnasium/CartPole-v1 --num-envs 64",
    "host-pendulum": "sac --env gymnasium/Pendulum-v1 --preset mujoco --warmup-steps 100",
    "host-pong": "ppo --env envpool/Pong-v5 --env-params atari=1 life_loss=1 frame_stack=4 reward_clip=1 --num-envs 8"
    " --clip-epsilon 0.1 --torso nature --hidden-sizes 512 --activation relu",
}
"""What follows ``purerl train`` by workload; --options replaces it."""
FRAMES = {"host-cartpole": 64 * 128 * 60, "host-pong": 8 * 128 * 20, "host-pendulum": 10_000}


class Window(NamedTuple):
    """The frames of a run within which it is timed."""

    first: int
    last: int

    @classmethod
    def of(cls, total: int) -> "Window":
        return cls(total // 10, total * 9 // 10)

    @property
    def frames(self) -> int:
        return self.last - self.first

    def seconds(self, stamps: host_peers.Stamps) -> float:
        """How long they took, of ``(frames, seconds)`` in order, a straight line between two. Raises `SystemExit` for a
        run that ended before."""
        if len(stamps) < 2 or stamps[-1][0] < self.last:
            raise SystemExit(f"a run ended before {self.last} frames: {stamps[-1:]}")
        return _when(stamps, self.last) - _when(stamps, self.first)


def _when(stamps: host_peers.Stamps, frames: int) -> float:
    after = next(i for i, stamp in enumerate(stamps) if stamp[0] >= frames)
    (left, start), (right, ended) = stamps[max(after, 1) - 1], stamps[max(after, 1)]
    return start + (ended - start) * (frames - left) / (right - left)


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
    total = request["total_steps"]
    if request["side"] == "purerl":
        return training(shlex.split(request["options"]), total)
    peer = host_peers.PEERS[request["workload"]][request["side"]]
    return _timed(lambda seed: peer(total, seed, request["checkout"]), total, {})


def training(options: list[str], total: int) -> turns.Job:
    """``purerl train`` as a person runs it, in a process of its own. Its stamps are its ``times.jsonl``; the shares of
    time that it logs are told, the mean over iterations."""
    shares: dict[str, float] = {}

    def train(seed: int) -> host_peers.Stamps:
        from purerl.store import log

        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "purerl.cli", "train", *options, "--total-steps", str(total)]
            command += ["--seed", str(seed), "--eval-episodes", "1", "--out", str(Path(folder, "run"))]
            host_peers.run(command)
            metrics = list(log.rows(Path(folder, "run/metrics.jsonl")))
            names = [name for name in metrics[0] if name.startswith("share_")]
            shares.update({name: statistics.mean(row[name] for row in metrics) for name in names})
            return [
                (0, 0.0),
                *((row["env_steps"], row["seconds"]) for row in log.rows(Path(folder, "run/times.jsonl"))),
            ]

    return _timed(train, total, shares)


def _timed(train: Callable[[int], host_peers.Stamps], total: int, shares: dict[str, float]) -> turns.Job:
    window = Window.of(total)
    tally_of = lambda stamps: {"seconds": window.seconds(stamps), "shares": dict(shares)}
    return turns.Job(None, lambda _, seed: train(seed), tally=tally_of)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints all sides."""
    total = args.total_steps or FRAMES[args.workload]
    request = {**request, "warmups": 0, "total_steps": total}
    options = args.options if args.options is not None else OURS[args.workload]
    sides = [turns.Side("purerl", sys.executable, {**request, "side": "purerl", "options": options})]
    threads = {"OMP_NUM_THREADS": str(args.peer_threads)} if args.peer_threads else {}
    for peer in args.peer:
        name, _, where = peer.partition("=")
        python, _, checkout = where.partition(",")
        theirs = {**request, "side": name, "checkout": str(Path(checkout).resolve())}
        sides.append(turns.Side(name, python, theirs, threads))
    results = turns.measure(sides, args.rounds, args.processes)
    return [{"options": options, **compare(results, "purerl", Window.of(total).frames)}]


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
