"""A profile of PPO on CartPole-v1: the kernels that take longest, with their share and the bytes that they move.

    python scripts/benchmark.py profile --agents 2048 --total-steps 16384 --longest 30

Shares are of the time of all kernels, ``busy`` is that time over the whole run, on a CPU over all its threads. Bytes
are counted in the compiled program (`hardware.census`), so GB/s beyond the memory's come out of caches. A kernel that
the program does not name, as a library's product may be, has none.
"""

import argparse
import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from workloads import ppo, sides, turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, default=2048, help="agents trained at once (default: 2048)")
    parser.add_argument("--total-steps", type=int, default=16_384, help="frames of an agent (default: 16384)")
    parser.add_argument("--longest", type=int, default=30, help="kernels that are listed (default: 30)")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    return None


def job(request: dict[str, Any]) -> turns.Job:
    """A training of all agents, which is traced."""
    training = sides.training(request)
    profiled = lambda program, seed: traced(training, program, seed)
    return training._replace(run=profiled, tally=lambda told: told)


def traced(training: turns.Job, program: Any, seed: int) -> dict[str, Any]:
    """What a traced run tells: ``kernels`` ``[name, runs, seconds, bytes a run]``, the longest first, and ``wall``."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            start = time.perf_counter()
            jax.block_until_ready(training.run(program, seed))
            wall = time.perf_counter() - start
        (path,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
        events = list(kernels(jax.profiler.ProfileData.from_file(str(path))))
    runs: dict[str, list[float]] = defaultdict(list)
    for name, seconds in events:
        runs[name].append(seconds)
    moved = traffic(program.as_text())
    rows = [[name, len(each), sum(each), moved.get(plain(name))] for name, each in runs.items()]
    return {"kernels": sorted(rows, key=lambda row: -row[2]), "wall": wall}


def kernels(profile: Any):
    """Yields the name and the seconds of each kernel: of a GPU what its streams ran, of a CPU what names an operation
    and holds no others."""
    planes = [plane for plane in profile.planes if plane.name.startswith("/device:GPU")]
    on_gpu = bool(planes)
    for plane in planes or [plane for plane in profile.planes if plane.name == "/host:CPU"]:
        for line in plane.lines:
            if on_gpu and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                name = dict(event.stats).get("hlo_op", event.name if on_gpu else None)
                if name and (on_gpu or (event.name == name and not name.startswith(("while", "call", "conditional")))):
                    yield name, event.duration_ns / 1e9


def traffic(text: str) -> dict[str, int]:
    """Bytes that each kernel of a compiled program moves, by its `plain` name."""
    from purerl.hardware import census, hlo

    program = hlo.parse(text)
    return {
        plain(name): census.traffic(program, computation, kernel)
        for computation in program.computations.values()
        for name, kernel in computation.items()
        if kernel.op not in census.FREE
    }


def plain(name: str) -> str:
    """A name as a GPU's kernels have it, without dots and hyphens."""
    return re.sub(r"\W", "_", name)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Profiles the last round, and prints."""
    words = ppo.words("ppo-cartpole", args.agents, args.total_steps)
    told = turns.measure([sides.ours(words, request)], args.rounds, args.processes)["purerl"][-1]["rounds"][-1]
    total = sum(seconds for _, _, seconds, _ in told["kernels"])
    share = lambda seconds: round(seconds / total, 4)
    moves = [row[2] for row in told["kernels"] if re.search("copy|transpose|memcpy|memset", row[0], re.IGNORECASE)]
    listed = [
        [name, runs, share(seconds), round(moved * runs / seconds / 1e9, 1) if moved and seconds else None]
        for name, runs, seconds, moved in told["kernels"][: args.longest]
    ]
    for name, runs, of_all, rate in listed:
        print(f"{of_all:7.2%}  {runs:9,}  {'      -' if rate is None else f'{rate:7.1f}'} GB/s  {name}", flush=True)
    row = {"busy": round(total / told["wall"], 3), "kernels": len(told["kernels"])}
    row |= {"runs": sum(runs for _, runs, *_ in told["kernels"]), "copies_and_transposes": share(sum(moves))}
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return [{"agents": args.agents, "total_steps": args.total_steps, **row, "longest": listed}]
