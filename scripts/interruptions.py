"""Interrupts runs at random moments and goes on with them: whether they end in the bits of one that nothing stopped.

    python scripts/interruptions.py --kills 50 --signals 20 [--only ppo dqn sac league search ...] [--seed 0]

A chain is a run that is interrupted up to five times, each time at a random moment between the command's start and its
end, and each time goes on; then it is left to finish, and its policies, logs and summary (but for its times) are
compared with those of the whole run. Checkpoints are written all the time, so that many moments lie within one.
Interruptions are SIGKILL, SIGINT and SIGTERM; the latter two must end in the exit codes 130 and 143. Prints a line for
each run and kind, and exits with 1 if any chain differs.
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
    "sweep": ["sweep", "a2c", *SMALL, "--total-steps", "2e5", "--gamma", "0.9,0.95,0.99,1", "--agents-at-once", "2"],
}
FILES = "policy.safetensors", "metrics.jsonl", "quantiles.jsonl", "generations.jsonl"
TIMES = "wall_seconds", "compile_seconds", "steps_per_second", "seconds"
NEW_EPISODES = ("host",)
"""Runs whose episodes begin anew where they go on, so that they need only come to their end."""
PER_CHAIN = 5


def start(args: list[str], cache: Path) -> subprocess.Popen:
    """A command of purerl, which is silent."""
    command = [sys.executable, "-m", "purerl.cli", *args, "--compilation-cache", str(cache)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


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


def interrupted(args: list[str], directory: Path, number: int, moment: float, cache: Path) -> tuple[str, bool]:
    """Interrupts a run after ``moment`` seconds: where that was, and whether it ended as it should."""
    process = start(begin(args, directory), cache)
    try:
        process.wait(moment)
        return "finished", process.returncode == 0
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    _, output = process.communicate(timeout=120)
    expected = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    right = process.returncode in (expected, 0) and "Traceback" not in output
    if not (directory / "config.json").exists():
        return "before it began", right
    saving = number == signal.SIGKILL and any((directory / "checkpoints").rglob("*.tmp"))
    return "while saving" if saving else "else", right


def chains(name: str, number: int, count: int, scratch: Path, rng: random.Random) -> dict[str, int]:
    """Interrupts ``count`` times, in chains; counts where, and how many chains ended in the bits of the whole run."""
    args, cache, whole = RUNS[name], scratch / "cache", scratch / "whole"
    if not whole.exists():
        for attempt in (scratch / "first", whole):  # the second finds its programs compiled
            started = time.monotonic()
            assert start([*args, "--out", str(attempt), "--checkpoint-seconds", "0.02"], cache).wait() == 0
        (scratch / "seconds").write_text(str(time.monotonic() - started))
    seconds, expected = float((scratch / "seconds").read_text()), outcome(whole)
    results = {"before it began": 0, "while saving": 0, "else": 0, "wrong exit": 0, "equal": 0, "differ": 0}
    done = 0
    while done < count:
        directory = scratch / "chain"
        shutil.rmtree(directory, ignore_errors=True)
        for _ in range(min(PER_CHAIN, count - done)):
            where, right = interrupted(args, directory, number, rng.uniform(0.2, 1.0) * seconds, cache)
            results["wrong exit"] += not right
            if where == "finished":
                break
            results[where] += 1
            done += 1
        while not (directory / "summary.json").exists() or _status(directory) == "interrupted":
            if start(begin(args, directory), cache).wait() != 0:
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
