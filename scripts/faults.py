"""What comes of environments in workers that fail, and of workers whose parent is gone, many times each.

    python scripts/faults.py [--times 20] [--only "nan" "kill -9 of a worker"] [--train ppo] [--seed 0]

A run steps the walks of `faulty`, in two workers and two groups: a plain loop over a pool, or with ``--train`` a
training. The fault is planted in a step, or a signal is sent at a random moment. As documented means: one line tells of
a worker's fault, the worker is restarted once, the four episodes that it had are cut off and the run ends with 0; a
signal to the parent, or to its group as Ctrl-C is, ends it with the signal's code. Then the processes are counted that
are left two seconds later, of all that inherited the run's mark, and the shared memory that was seen in them and that
still exists.

Prints a row for each fault, and exits with 1 if any run was not as documented or left anything.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import faulty
import numpy as np
import psutil
import scales

from purerl.hosts import pool
from purerl.hosts.bundle import Recipe

TIMEOUT = 1.0
NUM_ENVS, MORE = 8, 200
LONG = "1e9"
RESTARTED = "; is restarted ("
"""What is in the line that a pool tells of a worker's fault."""


class Case(NamedTuple):
    """A fault that is planted, a signal to a worker or to the parent, and what the line or the exit code is then."""

    planted: str = ""
    to_worker: int = 0
    to_parent: int = 0
    says: str = ""
    timeout: float = TIMEOUT


CASES = {
    "kill -9 of a worker": Case(to_worker=signal.SIGKILL, says="was killed by signal 9"),
    "exception in step": Case("raise", says="raised ValueError: the walk broke (faulty.py:"),
    "exit in step": Case("exit", says="exited with code 7"),
    "hang": Case("hang", says="hangs: no answer within 1 s (faulty.py:"),
    "hang in compiled code": Case("spin", says="hangs: no answer within 1 s;"),
    "nan": Case("nan", says="returned invalid data: the observation of environment"),
    "wrong shape": Case("shape", says="returned invalid data: observation is float32 [2, 2], must be float32 [2, 3]"),
    "wrong dtype": Case("dtype", says="returned invalid data: observation is complex128"),
    "kill -9 of the parent": Case(to_parent=signal.SIGKILL),
    "kill -9 of the parent in a hang": Case("parent", to_parent=signal.SIGKILL, timeout=600.0),
    "Ctrl-C": Case(to_parent=signal.SIGINT),
    "SIGTERM": Case(to_parent=signal.SIGTERM),
}


def loop(params: dict, timeout: float) -> None:
    """Steps the walks of a pool, until a while after a worker was restarted, and prints what was seen."""
    with pool.open(Recipe("faulty:walk", params), NUM_ENVS, num_workers=2, groups=2, timeout=timeout) as opened:
        for group, stepper in enumerate(opened.steppers):
            stepper.reset(np.arange(4) + 4 * group)
        actions, cut, more = np.ones(4, np.int32), 0, 0
        for stepper in opened.steppers:
            stepper.send(actions)
        print("begun", flush=True)
        while more < MORE:
            for stepper in opened.steppers:
                turn = stepper.receive()
                assert all(np.isfinite(x).all() for x in (*turn.obs, *turn.next_obs, turn.reward))
                cut += turn.cut
                stepper.send(actions)
            more += opened.restarts > 0
        print(json.dumps({"cut": cut}))


def command(algo: str, params: dict, case: Case, folder: Path) -> list[str]:
    """What steps the walks: this script's loop, or a training."""
    if not algo:
        return [sys.executable, __file__, "--loop", json.dumps(params), "--timeout", str(case.timeout)]
    given = [f"{name}={value}" for name, value in params.items()]
    frames = LONG if case.to_parent else "8192"
    args = [
        "train",
        algo,
        "--env",
        "faulty:walk",
        "--env-params",
        *given,
        "--num-envs",
        str(NUM_ENVS),
        "--workers",
        "2",
    ]
    args += ["--double-buffering", "on", "--worker-timeout", str(case.timeout), "--total-steps", frames]
    args += ["--compile", "quick", "--hidden-sizes", "16", "--num-steps", "64"]
    args += ["--eval-episodes", "2", "--out", str(folder / "run"), "--compilation-cache", str(folder.parent / "cache")]
    return [sys.executable, "-m", "purerl.cli", *args]


def marked(folder: Path) -> list[psutil.Process]:
    """The processes of the run in ``folder``, which have inherited its mark."""
    results = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(faulty.MARK) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                results.append(process)
        except (psutil.Error, OSError):
            continue
    return results


def memories(processes: Iterable[psutil.Process]) -> set[tuple[int, int]]:
    """Devices and inodes of the memory that processes map or hold and may share: without a name, or in /dev/shm."""
    results = set()
    for process in processes:
        try:
            for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
                if "/memfd:purerl" in line or "/dev/shm/" in line:
                    device, inode = line.split()[3:5]
                    results.add((os.makedev(*(int(part, 16) for part in device.split(":"))), int(inode)))
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                if "/memfd:purerl" in os.readlink(link):
                    results.add((link.stat().st_dev, link.stat().st_ino))
        except OSError:
            continue
    return results


def left_of(folder: Path, shared: set[tuple[int, int]]) -> tuple[list[psutil.Process], set[tuple[int, int]]]:
    """The processes of the run in ``folder`` that are there, and those of the memories that it ``shared``."""
    named = {(path.stat().st_dev, path.stat().st_ino) for path in Path("/dev/shm").iterdir()}
    return marked(folder), shared & (memories(psutil.process_iter()) | named)


def once(case: Case, algo: str, folder: Path, rng: random.Random) -> tuple[bool, int, int]:
    """Runs a case: whether it came out as documented, the processes that are left, and the shared memories."""
    params = {"seconds": 0.001, "after": rng.randint(50, 150)}
    params |= {"fault": faulty.FAULTS.index(case.planted) + 1} if case.planted else {}
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(folder / "err", "w+") as err, open(folder / "out", "w+") as out:
        process = subprocess.Popen(
            command(algo, params, case, folder),
            stdout=out,
            stderr=err,
            env={**os.environ, faulty.MARK: str(folder), "PYTHONPATH": path},
            start_new_session=True,
        )
        shared: set[tuple[int, int]] = set()
        if case.to_worker or case.to_parent:
            marker = folder / "run" / "metrics.jsonl" if algo else folder / "out"
            marker = folder / "fault" if case.planted else marker
            while not (marker.exists() and (case.planted or marker.stat().st_size)):
                time.sleep(0.02)
                assert process.poll() is None, (folder / "err").read_text()
            workers = [each for each in marked(folder) if "purerl.hosts.worker" in each.cmdline()]
            time.sleep(rng.uniform(0.0, 0.5))
            shared |= memories(marked(folder))
            if case.to_worker:
                rng.choice(workers).send_signal(case.to_worker)
            elif case.to_parent == signal.SIGINT:
                os.killpg(process.pid, case.to_parent)
            else:
                process.send_signal(case.to_parent)
        while process.poll() is None:
            shared |= memories(marked(folder))
            time.sleep(0.1)
        code = process.returncode
        end = time.monotonic() + 2.0
        while any(remains := left_of(folder, shared)) and time.monotonic() < end:
            time.sleep(0.02)
        err.seek(0)
        out.seek(0)
        right = documented(case, algo, code, err.read(), out.read(), folder)
    if not right:
        print(f"code {code}: {(folder / 'err').read_text()[-2000:]}", file=sys.stderr)
    assert shared, "no shared memory was seen"
    for each in remains[0]:
        each.kill()
    return right, len(remains[0]), len(remains[1])


def documented(case: Case, algo: str, code: int, err: str, out: str, folder: Path) -> bool:
    """Whether a run ended as it should."""
    if case.to_parent:
        return code == (128 + case.to_parent if algo and case.to_parent != signal.SIGKILL else -case.to_parent)
    lines = [line for line in err.splitlines() if RESTARTED in line]
    if algo:
        rows = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
        cut = sum(np.sum(row.get("episodes_cut", 0)) for row in rows)
    else:
        cut = json.loads(out.splitlines()[-1])["cut"] if code == 0 else -1
    return code == 0 and len(lines) == 1 and case.says in lines[0] and cut == NUM_ENVS // 2 and "Traceback" not in err


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--times", type=int, default=20, help="number of runs of each fault")
    result.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), help="faults")
    result.add_argument("--train", default="", metavar="ALGO", help="train this algorithm instead of a plain loop")
    result.add_argument("--seed", type=int, default=0, help="seed of the moments")
    result.add_argument("--loop", type=json.loads, help=argparse.SUPPRESS)
    result.add_argument("--timeout", type=float, help=argparse.SUPPRESS)
    scales.add(result, times=1)
    return result


def main() -> int:
    """Runs everything and returns the exit code."""
    given = parser().parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has had ignored in its background
    if given.loop is not None:
        loop(given.loop, given.timeout)
        return 0
    failed, rng = False, random.Random(given.seed)
    print("| fault | times | as documented | processes left | shared memory left |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.only:
            results = []
            for i in range(given.times):
                folder = Path(scratch) / f"{name.replace(' ', '-')}-{i}"
                folder.mkdir()
                results.append(once(CASES[name], given.train, folder, rng))
            right, left, shared = (sum(column) for column in zip(*results, strict=True))
            failed |= right < given.times or left > 0 or shared > 0
            print(f"| {name} | {given.times} | {right} | {left} | {shared} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
