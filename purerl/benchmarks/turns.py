"""Sides that compute by turns, each in a fresh interpreter of its own, and what is made of their times.

Only the standard library is imported here: an interpreter without purerl, that of a peer, reads this file too.
"""

import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

OF_CURVE = "return", "return_error", "share_until"
MOST_LINES = 20
"""The largest number of lines that are kept of what a process said before it failed."""
GRACE = 2.0
"""Seconds that a worker has to end by itself, and what it has started, before it is killed."""

Stamps = list[tuple[int, float]]
"""Frames so far and seconds, in order."""


class Failed(Exception):
    """A process that ended before it was done: its exit ``code``, negative for a signal, and its last ``lines``."""

    def __init__(self, name: str, code: int, lines: Sequence[str]):
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        super().__init__(f"{name}: its process {ended}: {lines[-1] if lines else 'it said nothing'}")
        self.name, self.code, self.lines = name, code, list(lines)


class Job(NamedTuple):
    """What a worker computes: ``run(program, seed)`` is timed, ``program`` being ``lower()`` compiled.

    ``facts`` are told before the first turn, and ``tally`` of a run's result after each. Without ``lower``, for what is
    no one program of JAX but processes of its own, ``program`` is None, and nothing is warmed up. ``within`` is entered
    before the program is made.
    """

    lower: Callable[[], Any] | None
    run: Callable[[Any, int], Any]
    facts: dict[str, Any] = {}
    tally: Callable[[Any], dict[str, Any]] = lambda result: {}
    within: contextlib.AbstractContextManager = contextlib.nullcontext()


class Side(NamedTuple):
    """One that takes turns: the command of its worker, what that is asked for, and what its environment has beside."""

    name: str
    command: Sequence[str]
    request: dict[str, Any]
    environment: dict[str, str] = {}


class Window(NamedTuple):
    """The frames of a run within which it is timed."""

    first: int
    last: int

    @classmethod
    def of(cls, total: int) -> "Window":
        """Makes the window from a tenth of ``total`` frames to nine tenths."""
        return cls(total // 10, total * 9 // 10)

    @property
    def frames(self) -> int:
        """How many they are."""
        return self.last - self.first

    def seconds(self, stamps: Stamps) -> float:
        """Returns how long they took, by a straight line between two stamps.

        Raises:
            SystemExit: The run ended before.
        """
        if len(stamps) < 2 or stamps[-1][0] < self.last:
            raise SystemExit(f"a run ended before {self.last} frames: {stamps[-1:]}")
        return _when(stamps, self.last) - _when(stamps, self.first)


def _when(stamps: Stamps, frames: int) -> float:
    after = next(i for i, stamp in enumerate(stamps) if stamp[0] >= frames)
    (left, start), (right, ended) = stamps[max(after, 1) - 1], stamps[max(after, 1)]
    return start + (ended - start) * (frames - left) / (right - left)


def windowed(train: Callable[[int], Stamps], total: int, told: dict[str, Any]) -> Job:
    """Makes the job of a training in processes of its own, which is timed within a `Window`.

    Args:
        train: Trains with a seed, and returns the stamps.
        total: The frames of the training.
        told: What is told of a run beside its seconds, as it is after the run.
    """
    window = Window.of(total)
    tally = lambda stamps: {"seconds": window.seconds(stamps), **told}
    return Job(None, lambda _, seed: train(seed), {"frames": window.frames}, tally)


def run(command: list[str], read: Callable[[str], None] = lambda line: None, folder: str | None = None) -> None:
    """Runs ``command`` within ``folder``, and gives each line that it prints to ``read``. It ends with this process.

    Raises:
        SystemExit: It failed; with its last lines.
    """
    lines: deque[str] = deque(maxlen=MOST_LINES)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    process = subprocess.Popen(
        command,
        cwd=folder,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        for line in process.stdout or ():
            lines.append(line)
            read(line)
        code = process.wait()
    finally:
        process.kill()
    if code:
        raise SystemExit(f"{' '.join(command)}\n{''.join(lines)}")


def serve(make_job: Callable[[dict[str, Any]], Job], request: dict[str, Any]) -> None:
    """Computes as a worker: compiles, says so on standard output, then runs once for each seed that it reads.

    What libraries and processes that they start print goes to standard error.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        job = make_job(request)
        with job.within:
            _serve(job, request["warmups"], lambda answer: print(json.dumps(answer), file=answers, flush=True))


def _serve(job: Job, warmups: int, say: Callable[[dict[str, Any]], None]) -> None:
    program, facts, finish = _compiled(job.lower) if job.lower else (None, {}, lambda result: result)
    for seed in range(warmups) if job.lower else ():
        finish(job.run(program, seed))
    say({**facts, **job.facts})
    for line in sys.stdin:
        cpu = _cpu_seconds()
        start = time.perf_counter()
        result = finish(job.run(program, int(line)))
        seconds = time.perf_counter() - start
        cores = (_cpu_seconds() - cpu) / seconds
        say({"seconds": seconds, "cores": cores, **_peak(program), **job.tally(result)})


def _compiled(lower: Callable[[], Any]) -> tuple[Any, dict[str, Any], Callable[[Any], Any]]:
    """Returns the program, what is told of it, and what waits for its results."""
    import jax

    start = time.perf_counter()
    program = lower().compile()
    compile_seconds = time.perf_counter() - start
    memory = program.memory_analysis()
    devices = jax.devices()
    total_bytes = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    facts = {
        "compile_seconds": compile_seconds,
        "compile_cached": bool(jax.config.jax_compilation_cache_dir),  # type: ignore[attr-defined]
        "predicted_peak_bytes": (total_bytes - memory.alias_size_in_bytes) * len(devices),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "jax": jax.__version__,
        "matmul_precision": jax.config.jax_default_matmul_precision or "default",  # type: ignore[attr-defined]
    }
    return program, facts, jax.block_until_ready


def _cpu_seconds() -> float:
    """Returns those of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _peak(program: Any) -> dict[str, Any]:
    """Returns the peak of memory: of the first device if there is a ``program`` and the device tells it.

    Otherwise it is that of the largest process, among this one and those that it waited for.
    """
    stats = sys.modules["jax"].devices()[0].memory_stats() if program else None
    if stats and "peak_bytes_in_use" in stats:
        return {"peak_bytes": stats["peak_bytes_in_use"], "peak_of": "device"}
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak_bytes": max(resource.getrusage(kind).ru_maxrss for kind in kinds) * unit, "peak_of": "process"}


_open: list["Worker"] = []
"""The workers that have not been closed."""
_leaving = threading.Event()
"""Set when a signal ends this process."""


def close_all() -> None:
    """Ends all workers before a signal ends this process. The thread that reads of them waits for that."""
    _leaving.set()
    for worker in _open:
        worker.end()


class Worker:
    """A fresh interpreter that computes when told to."""

    def __init__(self, side: Side) -> None:
        """Starts it, and waits until it is ready. Raises `Failed`."""
        self.name, self.errors = side.name, tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - see close
        self.process = subprocess.Popen(
            [*side.command, json.dumps(side.request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **side.environment},
        )
        _open.append(self)
        try:
            self.facts = self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            if _leaving.is_set():
                threading.Event().wait()
            self.errors.seek(0)
            said = deque(filter(None, map(str.rstrip, self.errors)), MOST_LINES)
            raise Failed(self.name, code, list(said))
        return json.loads(line)

    def run(self, seed: int) -> dict[str, Any]:
        """Runs once. Raises `Failed`."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended, as reading tells
            self.process.stdin.write(f"{seed}\n")
            self.process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Ends the process."""
        self.process.terminate()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Ends the process, and closes its files."""
        _open.remove(self)
        self.end()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):
                assert file
                file.close()


def measure(sides: Sequence[Side], rounds: int, processes: int) -> dict[str, list[dict[str, Any]]]:
    """Returns what the sides say, by name: a list over ``processes``, as `measure_once` returns of each.

    Raises:
        Failed: A process failed.
    """
    each = [measure_once(sides, rounds, number) for number in range(processes)]
    return {side.name: [told[side.name] for told in each] for side in sides}


def measure_once(sides: Sequence[Side], rounds: int, number: int) -> dict[str, dict[str, Any]]:
    """Returns what a fresh process of each side says, by name: its facts, with its ``rounds``.

    In a round every side runs once, with a seed of that round, in an order that turns round from one to the next, also
    from the last round of a process to the first of the process with the next ``number``.

    Raises:
        Failed: A process failed.
    """
    with contextlib.ExitStack() as stack:
        workers = {}
        for side in sides:
            workers[side.name] = Worker(side)
            stack.callback(workers[side.name].close)
        rounds_of: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for turn in range(number * rounds, (number + 1) * rounds):
            for name in sorted(workers, reverse=bool(turn % 2)):
                rounds_of[name].append(workers[name].run(10 + turn))
        return {name: {**worker.facts, "rounds": rounds_of[name]} for name, worker in workers.items()}


def spread(values: list[float]) -> dict[str, float]:
    """Returns the median, the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def seconds(results: list[dict[str, Any]]) -> list[float]:
    """Returns the time of a run in each process, the median over its rounds."""
    return [statistics.median(r["seconds"] for r in process["rounds"]) for process in results]


def ratio(slow: list[dict[str, Any]], fast: list[dict[str, Any]]) -> dict[str, float]:
    """Returns how much longer ``slow`` took than ``fast`` within a round: the median over rounds, and its spread."""
    pairs = [zip(x["rounds"], y["rounds"], strict=True) for x, y in zip(slow, fast, strict=True)]
    return spread([statistics.median(a["seconds"] / b["seconds"] for a, b in pair) for pair in pairs])


def of_curve(returns: Any, until: float | None = None) -> dict[str, float]:
    """Returns what a run's tally tells of returns while training, ``[agents, time]``, nan where no episode ended.

    It is the mean over agents of the last twentieth, with its standard error; and with ``until`` how much of the
    training it took until the mean over agents was that high, from 0 to 1: nothing if it never was.
    """
    import numpy as np

    returns = np.asarray(returns, np.float64)
    last = returns[:, -max(1, returns.shape[1] // 20) :]
    told = {}
    if ended := [agent[np.isfinite(agent)].mean() for agent in last if np.isfinite(agent).any()]:
        told = {"return": float(np.mean(ended)), "return_error": float(np.std(ended) / len(ended) ** 0.5)}
    if until is not None:
        known = np.isfinite(returns)
        mean = np.where(known, returns, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        there = known.any(axis=0) & (mean >= until)
        told |= {"share_until": float((there.argmax() + 1) / there.size)} if there.any() else {}
    return told


def rate(results: list[dict[str, Any]], count: int) -> dict[str, float]:
    """Returns how many of ``count`` things a run does a second: the median over processes, and its spread."""
    return spread([count / taken for taken in seconds(results)])


def figures(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what every workload tells of a side; of `of_curve`'s, if runs tell them, the mean over runs.

    What only a compiled program tells is left out where there is none.
    """
    runs = [run for process in results for run in process["rounds"]]
    tallied = {name: [run[name] for run in runs] for name in OF_CURVE if all(name in run for run in runs)}
    told: dict[str, Any] = {"seconds": spread([run["seconds"] for run in runs])}
    told |= {name: statistics.mean(values) for name, values in tallied.items()}
    if "compile_seconds" in results[0]:
        told["compile_seconds"] = spread([p["compile_seconds"] for p in results])
    told["peak_mib"] = spread([max(r["peak_bytes"] for r in p["rounds"]) / 2**20 for p in results])
    if "predicted_peak_bytes" in results[0]:
        told["predicted_peak_mib"] = spread([p["predicted_peak_bytes"] / 2**20 for p in results])
    told["cores"] = spread([statistics.median(r["cores"] for r in p["rounds"]) for p in results])
    names = "device", "devices", "jax", "matmul_precision"
    return told | {name: results[0][name] for name in names if name in results[0]}


def show(value: dict[str, float], digits: str = ".3g") -> str:
    """Returns ``median [low, high]``."""
    return f"{value['median']:{digits}} [{value['low']:{digits}}, {value['high']:{digits}}]"


def show_figures(value: dict[str, Any]) -> str:
    """Returns what `figures` gives, in words."""
    told = f", return {value['return']:.1f} +- {value['return_error']:.1f}" if "return" in value else ""
    told += f", {value['share_until'] * value['seconds']['median']:.1f} s until it" if "share_until" in value else ""
    return (
        f"compile {show(value['compile_seconds'])} s, peak {show(value['peak_mib'])} MiB, "
        f"cores {show(value['cores'])}{told}"
    )


def speeds(results: dict[str, list[dict[str, Any]]], frames: int, of: str = "", unit: str = "frames") -> dict[str, Any]:
    """Returns the `figures` and frames/s of each side by name, and prints a line for each, which begins with ``of``.

    Args:
        results: What the sides say.
        frames: What a run of each takes, unless its facts tell others.
        of: What the lines begin with.
        unit: What is counted.
    """
    row = {}
    for name, processes in results.items():
        speed = rate(processes, processes[0].get("frames", frames))
        row[name] = {f"{unit}_per_second": speed, **figures(processes)}
        print(f"{of}{name}: {show(speed, ',.0f')} {unit}/s, {show_figures(row[name])}", flush=True)
    return row
