"""Interrupts runs at random moments and goes on with them: whether they end in the bits of one that nothing stopped.

    python scripts/interruptions.py --kills 50 --signals 20 [--only ppo dqn sac league search ...] [--seed 0]

A chain is a run that is interrupted up to five times, each time at a random moment between the command's start and its
end, and each time goes on; then it is left to finish, and its policies, logs and summary (but for its times) are
compared with those of the whole run. Checkpoints are written all the time, so that many moments lie within one.
Interruptions are SIGKILL, SIGINT and SIGTERM; the latter two must end in the exit codes 130 and 143. Of a run of
several processes the signal goes to one, and all must end. Prints a line for each run and kind, and exits with 1 if any
chain differs.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import scales
import several_processes

SMALL = ["--env", "CartPole-v1", "--num-envs", "4", "--hidden-sizes", "32", "--eval-episodes", "4"]
RUNS = {
    "ppo": ["train", "ppo", *SMALL, "--num-steps", "32", "--total-steps", "2e5", "--num-seeds", "4"],
    "dqn": ["train", "dqn", *SMALL, "--total-steps", "1e5", "--capacity", "4096", "--prioritised"],
    "sac": ["train", "sac", *SMALL, "--env", "Pendulum-v1", "--total-steps", "8e3", "--warmup-steps", "512"],
    "ngu": ["train", "ngu", *SMALL, "--total-steps", "4e3", "--capacity", "4096", "--warmup-steps", "512"],
    "league": [
        *("train", "ppo", *SMALL, "--env", "TicTacToe-v0", "--num-steps", "32", "--total-steps", "4e4"),
        *("--num-envs", "12", "--opponents", "league", "--past-met", "2"),
    ],
    "programs": ["sweep", "a2c", *SMALL, "--hidden-sizes", "8,16", "--total-steps", "1e5"],
    "search": [
        *("evolve", "value-loss", "--env", "CartPole-v1", "--num-envs", "4", "--hidden-sizes", "8", "--num-seeds", "1"),
        *("--population", "4", "--generations", "40", "--total-steps", "2048"),
    ],
    "host": ["train", "ppo", *SMALL, "--env", "gymnasium:CartPole-v1", "--num-steps", "32", "--total-steps", "1e4"],
    "r2d2": ["train", "r2d2", *SMALL, "--total-steps", "2e4", "--capacity", "4096", "--warmup-steps", "512"],
    "alphazero": [
        *("train", "alphazero", *SMALL, "--env", "TicTacToe-v0", "--opponents", "past", "--epsilon", "0.1"),
        *("--simulations", "8", "--n-step", "9", "--total-steps", "2e4", "--warmup-steps", "512"),
    ],
    "muzero": [
        *("train", "muzero", *SMALL, "--simulations", "4", "--prioritised", "--reanalyse-every", "4"),
        *("--total-steps", "1e4", "--capacity", "4096", "--warmup-steps", "512"),
    ],
    "processes": ["train", "a2c", *SMALL, "--num-seeds", "2", "--total-steps", "2e4"],
    "sweep": ["sweep", "a2c", *SMALL, "--total-steps", "2e5", "--gamma", "0.9,0.95,0.99,1", "--agents-at-once", "2"],
}
FILES = "policy.safetensors", "metrics.jsonl", "quantiles.jsonl", "generations.jsonl"
TIMES = "wall_seconds", "compile_seconds", "steps_per_second", "seconds"
NEW_EPISODES = ("host",)
"""Runs whose episodes begin anew where they go on, so that they need only come to their end."""
PROCESSES = {"processes": 2}
"""Runs of several processes, of which the signal goes to one."""
LOST = (5, -6)
"""How a process of several ends if another one was killed: by a line, or by JAX if that was the first one."""
PER_CHAIN = 5


def start(args: list[str], cache: Path, count: int = 1) -> list[subprocess.Popen]:
    """A command of purerl in ``count`` processes, which are silent."""
    command = [*args, "--compilation-cache", str(cache)]
    if count > 1:
        return several_processes.together(command, count, devices=1)
    whole = [sys.executable, "-m", "purerl.cli", *command]
    return [subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)]


def await_all(running: list[subprocess.Popen]) -> None:
    """Waits until several processes have compiled: before all are there, each waits for the others."""
    if len(running) > 1:
        next((line for line in running[0].stdout or () if "compiled in" in line), None)


def codes(running: list[subprocess.Popen], seconds: float | None = None) -> list[int]:
    """The exit codes of processes that end within ``seconds``. Raises `subprocess.TimeoutExpired` otherwise."""
    until = None if seconds is None else time.monotonic() + seconds
    return [process.wait(until and max(0.0, until - time.monotonic())) for process in running]


def outcome(directory: Path) -> dict:
    """What a run came to, by file, but for its times."""
    results: dict = {}
    for file in sorted(directory.rglob("*")):
        name = str(file.relative_to(directory))
        if file.name == "summary.json":
            summary = json.loads(file.read_text())
            results[name] = {key: value for key, value in summary.items() if key not in TIMES}
        elif file.name in FILES:
            results[name] = file.read_bytes()
        elif file.name == "artefact.json":
            results[name] = json.loads(file.read_text())["meta_params"]
    return results


def begin(args: list[str], directory: Path) -> list[str]:
    """What begins a run, or goes on with it if it has begun."""
    if (directory / "config.json").exists():
        return ["resume", str(directory)]
    return [*args, "--out", str(directory), "--checkpoint-seconds", "0.02"]


def interrupted(
    name: str, directory: Path, number: int, moment: float, cache: Path, rng: random.Random
) -> tuple[str, bool]:
    """Interrupts a run after ``moment`` seconds: where that was, and whether it ended as it should."""
    running = start(begin(RUNS[name], directory), cache, PROCESSES.get(name, 1))
    await_all(running)
    try:
        return "finished", not any(codes(running, moment))
    except subprocess.TimeoutExpired:
        hit = rng.choice(running)
        hit.send_signal(number)
    outputs = ["".join(filter(None, process.communicate(timeout=300))) for process in running]
    expected = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    others = LOST if number == signal.SIGKILL else (expected,)
    ends = [process.returncode in ((0, expected) if process is hit else (0, *others)) for process in running]
    right = all(ends) and not any("Traceback" in each for each in outputs)
    if not right:
        print(f"{name} {number}: exit codes {[each.returncode for each in running]}", *outputs, sep="\n")
    if not (directory / "config.json").exists():
        return "before it began", right
    saving = number == signal.SIGKILL and any((directory / "checkpoints").rglob("*.tmp"))
    return "while saving" if saving else "else", right


def chains(name: str, number: int, count: int, scratch: Path, rng: random.Random) -> dict[str, int]:
    """Interrupts ``count`` times, in chains; counts where, and how many chains ended in the bits of the whole run."""
    args, cache, whole, together = RUNS[name], scratch / "cache", scratch / "whole", PROCESSES.get(name, 1)
    if not whole.exists():
        for attempt in (scratch / "first", whole):  # the second finds its programs compiled
            started = time.monotonic()
            running = start([*args, "--out", str(attempt), "--checkpoint-seconds", "0.02"], cache, together)
            await_all(running)
            started = started if together == 1 else time.monotonic()
            assert not any(codes(running))
        (scratch / "seconds").write_text(str(time.monotonic() - started))
    seconds, expected = float((scratch / "seconds").read_text()), outcome(whole)
    results = {"before it began": 0, "while saving": 0, "else": 0, "wrong exit": 0, "equal": 0, "differ": 0}
    done = 0
    while done < count:
        directory = scratch / "chain"
        shutil.rmtree(directory, ignore_errors=True)
        for _ in range(min(PER_CHAIN, count - done)):
            where, right = interrupted(name, directory, number, rng.uniform(0.2, 1.0) * seconds, cache, rng)
            results["wrong exit"] += not right
            if where == "finished":
                break
            results[where] += 1
            done += 1
        while not (directory / "summary.json").exists() or _status(directory) == "interrupted":
            if any(codes(start(begin(args, directory), cache, together))):
                break
        equal = (directory / "summary.json").exists() and _status(directory) == "completed"
        equal = equal and (name in NEW_EPISODES or outcome(directory) == expected)
        results["equal" if equal else "differ"] += 1
        if not equal:
            shutil.copytree(directory, Path(tempfile.mkdtemp(prefix="differs-")) / "run")
    return results


def _status(directory: Path) -> str:
    return json.loads((directory / "summary.json").read_text())["status"]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--kills", type=int, default=50, help="number of SIGKILLs of each run")
    result.add_argument("--signals", type=int, default=20, help="number of SIGINTs and of SIGTERMs of each run")
    result.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS), help="runs to interrupt")
    result.add_argument("--seed", type=int, default=0, help="seed of the moments")
    scales.add(result, kills=1, signals=1, only=["ppo"])
    return result


def main() -> int:
    """Runs everything and returns the exit code."""
    given = parser().parse_args()
    failed, rng = 0, random.Random(given.seed)
    counts = {signal.SIGKILL: given.kills, signal.SIGINT: given.signals, signal.SIGTERM: given.signals}
    for name in given.only:
        with tempfile.TemporaryDirectory() as scratch:
            for number, count in counts.items():
                result = chains(name, number, count, Path(scratch), rng)
                failed += result["differ"] + result["wrong exit"]
                text = ", ".join(f"{value} {what}" for what, value in result.items())
                print(f"{name} {number.name}: {count} interruptions: {text}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
