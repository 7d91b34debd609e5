"""Whether several processes come to what one comes to, and what comes of it if one of them is killed.

    python scripts/several_processes.py [--only PART ...] [--members 16] [--times 2] [--seed 0]

``train``, ``sweep``, ``evolve`` and ``split`` run a command in two processes of two CPU devices each, over loopback,
and in one of four, and compare what they wrote, byte for byte: policies, logs, rankings, what a search found, and the
arrays of the last checkpoint. ``split`` is an agent in four shards over four devices, with ``--exact``; ``near`` is
one without, whose parameters may differ by 1e-6 after ten iterations. ``kill`` kills process 1 and then process 0, at
random moments after the first checkpoint, and goes on in one process: as documented means that the other one ends with
exit code 5 and one line, or if it was the first one that died with JAX's own 134, and that the run comes to the bits
of one that nothing has killed. The parts are run in this order, or those that ``--only`` names.

Prints a line for each part, and exits with 1 if anything differed or was not as documented. Releases have
``--members 512 --times 20``.
"""

import argparse
import collections
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import scales

from purerl.runs.describing.run_directory import has_checkpoints

TIMES = ("wall_seconds", "compile_seconds", "steps_per_second", "device", "flags", "seconds", "versions", "measured")
"""What a summary tells of the machine."""
RESULTS = ("policy.safetensors", "metrics.jsonl", "quantiles.jsonl")
CHECKPOINTS = "checkpoints"
LIMIT = 1800
"""Seconds after which a run is given up."""
ABORTED = -int(signal.SIGABRT)
SMALL = ("--env", "CartPole-v1", "--eval-episodes", "4", "--checkpoint-seconds", "0")


class Ended(NamedTuple):
    """The exit code of a process, what it said, and the moment it had ended."""

    code: int
    output: str
    at: float


def start(args: Sequence[str], number: int = 0, port: int = 0, count: int = 1, devices: int = 2) -> subprocess.Popen:
    """Starts ``purerl ARGS`` as process ``number`` of ``count``, each with ``devices`` of the CPU."""
    more = ["--processes", f"localhost:{port},{count},{number}"] if count > 1 else []
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, "-m", "purerl.cli", *args, *more]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def together(args: Sequence[str], count: int = 2, devices: int = 2) -> list[subprocess.Popen]:
    """Starts ``purerl ARGS`` in ``count`` processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [start(args, number, port, count, devices) for number in range(count)]


def ended(process: subprocess.Popen, seconds: float = LIMIT) -> Ended:
    """How a process ends. Raises `subprocess.TimeoutExpired`, and kills it, if it does not in so many seconds."""
    try:
        output = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ended(process.returncode, output, time.monotonic())


def until(holds: Callable[[], Any], running: Sequence[subprocess.Popen]) -> None:
    """Returns once something ``holds``. Raises `RuntimeError` if one of the processes ends before."""
    while not holds():
        if any(process.poll() is not None for process in running):
            raise RuntimeError("\n".join(ended(process).output for process in running))
        time.sleep(0.02)


def both(args: Sequence[str], folder: Path) -> tuple[Path, Path, float, float]:
    """The directories of a run in one process of four devices and in two of two, and the seconds that each took."""
    results: list[Any] = []
    for count in (1, 2):
        out, began = folder / f"{args[0]}-{count}", time.monotonic()
        running = together([*args, "--out", str(out)], count, 4 // count)
        for each in [ended(process) for process in running]:
            if each.code:
                sys.exit(f"{' '.join(args)}: exit code {each.code}\n{each.output}")
        results += [out, time.monotonic() - began]
    return results[0], results[2], results[1], results[3]


def contents(path: Path) -> dict[str, bytes]:
    """What a run wrote, by file, without what it tells of the machine and of times."""
    results = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if file.name in ("summary.json", "artefact.json"):
            whole = json.loads(file.read_text())
            results[name] = json.dumps({key: value for key, value in whole.items() if key not in TIMES}).encode()
        elif file.name == "card.json":
            results[str(file.parent.relative_to(path))] = saved(file.parent)
        elif file.is_file() and not {CHECKPOINTS, "run.lock", "times.jsonl"} & set(file.relative_to(path).parts):
            results[name] = file.read_bytes()
    return results


def saved(step: Path) -> bytes:
    """The arrays of a checkpoint, in how many pieces they may be."""
    whole: dict[str, list[tuple[list[int], np.ndarray]]] = {}
    for file in sorted(step.glob("*.safetensors")):
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            start, end = (begin + x for x in entry["data_offsets"])
            size = (end - start) // max(1, math.prod(entry["shape"]))
            part = np.frombuffer(data[start:end], np.uint8).reshape(*entry["shape"], size)
            array, _, at = name.rpartition("@")
            whole.setdefault(array, []).append(([int(x) for x in at.split(",") if x], part))
    results = []
    for name, parts in sorted(whole.items()):
        axes = range(len(parts[0][0]))
        shape = [max(starts[axis] + part.shape[axis] for starts, part in parts) for axis in axes]
        joined = np.zeros((*shape, parts[0][1].shape[-1]), np.uint8)
        for starts, part in parts:
            joined[tuple(slice(at, at + part.shape[axis]) for axis, at in enumerate(starts))] = part
        results.append(f"{name} {shape} ".encode() + joined.tobytes())
    return b"\n".join(results)


def different(one: Path, other: Path) -> list[str]:
    """The files in which two runs differ."""
    a, b = contents(one), contents(other)
    return [name for name in sorted(a | b) if a.get(name) != b.get(name)]


def compare(name: str, args: Sequence[str]) -> bool:
    """Compares a run in two processes with one; prints a line."""
    with tempfile.TemporaryDirectory() as folder:
        one, two, alone, shared = both([*args, "--compilation-cache", f"{folder}/cache"], Path(folder))
        differ, count = different(one, two), len(contents(one))
    text = f"{len(differ)} differ: {', '.join(differ)}" if differ else "all equal"
    print(f"{name:<8}{count} files, {text}; {alone:.0f} s in 1 x 4 devices, {shared:.0f} s in 2 x 2", flush=True)
    return not differ


def train(members: int) -> bool:
    """A population."""
    return compare("train", ["train", "ppo", *SMALL, "--num-seeds", str(members), "--total-steps", "8192"])


def sweep(members: int) -> bool:
    """A sweep of two settings, in one program."""
    rates = f"1e-4:1e-2:log:{members // 2}"
    more = ["--learning-rate", rates, "--num-seeds", "2", "--total-steps", "8192", "--eval-every", "4096"]
    return compare("sweep", ["sweep", "dqn", *SMALL, *more])


def evolve(members: int) -> bool:
    """A search."""
    more = ["--population", str(members), "--generations", "3", "--total-steps", "2048", "--num-envs", "4"]
    return compare("evolve", ["evolve", "value-loss", "--env", "CartPole-v1", *more])


def split(members: int) -> bool:
    """An agent over all devices."""
    more = ["--shards", "4", "--devices-per-agent", "4", "--exact", "--num-envs", "16", "--total-steps", "32768"]
    return compare("split", ["train", "ppo", *SMALL, *more])


def near(members: int) -> bool:
    """The same without ``--exact``, for ten iterations."""
    from purerl.runs.reading.loading import load

    more = ["--shards", "4", "--devices-per-agent", "4", "--num-envs", "16", "--num-steps", "32"]
    more += ["--total-steps", "5120"]
    with tempfile.TemporaryDirectory() as folder:
        args = ["train", "ppo", *SMALL, *more, "--compilation-cache", f"{folder}/cache"]
        policies = [jax.tree.leaves(load(out).policy) for out in both(args, Path(folder))[:2]]
    apart = max(float(np.max(np.abs(a - b))) for a, b in zip(*policies, strict=True))
    print(f"near    parameters are at most {apart:.1e} apart after 10 iterations", flush=True)
    return apart <= 1e-6


KILLED = [
    "train",
    "ppo",
    "--env",
    "CartPole-v1",
    "--num-seeds",
    "2",
    "--total-steps",
    "1000000",
    "--eval-episodes",
    "4",
]


def killed(who: int, directory: Path, more: Sequence[str], moment: float) -> tuple[Ended, float]:
    """How the other process ends after ``who`` is killed, so many seconds after the first checkpoint, and after how
    many seconds that is."""
    running = together([*KILLED, *more, "--checkpoint-seconds", "0.2", "--out", str(directory)], devices=1)
    until(lambda: has_checkpoints(directory), running)
    time.sleep(moment)
    running[who].kill()
    at = time.monotonic()
    other = ended(running[1 - who], 100)
    ended(running[who])
    return other, other.at - at


def documented(who: int, other: Ended, seconds: float) -> bool:
    """Whether the end of the process beside the one that was killed is as documented."""
    lines = [line for line in other.output.splitlines() if line.startswith("purerl: error:")]
    text = len(lines) == 1 and f"process {who} of 2 has died; resume with: purerl resume" in lines[0]
    return seconds < 10 and ((other.code == 5 and text) or (who == 0 and other.code == ABORTED))


def kill(times: int, seed: int) -> bool:
    """Kills one of two processes by turns; prints a line for each of the two."""
    rng, good = random.Random(seed), True
    with tempfile.TemporaryDirectory() as folder:
        more = ["--compilation-cache", f"{folder}/cache"]
        whole = Path(folder) / "whole"
        for each in [ended(process) for process in together([*KILLED, *more, "--out", str(whole)], devices=1)]:
            if each.code:
                sys.exit(each.output)
        for who in (1, 0):
            codes: collections.Counter[int] = collections.Counter()
            right, exact, worst = 0, 0, 0.0
            for number in range(times):
                directory = Path(folder) / f"{who}-{number}"
                other, seconds = killed(who, directory, more, rng.uniform(0, 2))
                codes[other.code] += 1
                right, worst = right + documented(who, other, seconds), max(worst, seconds)
                again = ended(start(["resume", str(directory), *more]))
                exact += again.code == 0 and not set(RESULTS) & set(different(whole, directory))
            text = ", ".join(f"{code} {count} times" for code, count in codes.items())
            print(
                f"kill -9 of process {who}: {right} of {times} as documented ({text}; after {worst:.2f} s at most), "
                f"{exact} of {times} exact on one process",
                flush=True,
            )
            good &= right == exact == times
    return good


PARTS: dict[str, Callable[[int], bool]] = {each.__name__: each for each in (train, sweep, evolve, split, near)}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--only", nargs="+", choices=[*PARTS, "kill"], default=[*PARTS, "kill"])
    result.add_argument("--members", type=int, default=16, help="agents, and candidates of a search")
    result.add_argument("--times", type=int, default=2, help="how often each process is killed")
    result.add_argument("--seed", type=int, default=0)
    scales.add(result, members=4, times=1)
    return result


def main() -> None:
    """Runs the parts that are asked for."""
    given = parser().parse_args()
    results = [PARTS[name](given.members) if name in PARTS else kill(given.times, given.seed) for name in given.only]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
