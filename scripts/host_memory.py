"""The memory of a long training in an environment of the host, whose steps cost next to nothing.

    python scripts/host_memory.py [--frames 1e8] [--out DIR]

Prints the memory of the process that trains at each tenth of the frames, and what its logs have grown to. It holds flat
if the last tenths are as the first ones.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import scales

OPTIONS = "--num-envs 64 --num-steps 128 --num-epochs 1 --num-minibatches 1 --hidden-sizes 8 --eval-episodes 4"
LOOK_SECONDS = 1.0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--frames", type=float, default=1e8, help="frames of the training (default: 1e8)")
    result.add_argument("--out", type=Path, help="run directory (default: one that is deleted)")
    scales.add(result, frames=1e5)
    return result


def main() -> None:
    given = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder) / "run"
        train = ["-m", "purerl.cli", "train", "ppo", "--env", "fast_env:make", *OPTIONS.split(), "--out", str(out)]
        train += ["--total-steps", f"{given.frames:.0f}", "--overwrite", "--checkpoint-seconds", "20"]
        workloads = Path(__file__).parent / "workloads"
        process = subprocess.Popen([sys.executable, *train], cwd=workloads, stderr=subprocess.DEVNULL)
        tenth, start = 0, time.perf_counter()
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            done = frames(out / "times.jsonl") / given.frames
            if int(10 * done) > tenth and process.poll() is None:
                tenth = int(10 * done)
                memory = psutil.Process(process.pid).memory_info().rss / 2**20
                logs = sum(path.stat().st_size for path in out.glob("*.jsonl")) / 2**20
                seconds = time.perf_counter() - start
                print(f"{done:4.0%} {memory:8.1f} MiB, logs {logs:7.1f} MiB, {seconds:6.0f} s", flush=True)
        sys.exit(process.returncode)


def frames(times: Path) -> int:
    """The frames that a log of times has come to."""
    try:
        with times.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 1000))
            return int(json.loads(file.read().splitlines()[-1])["env_steps"])
    except (OSError, ValueError, IndexError, KeyError):
        return 0


if __name__ == "__main__":
    main()
