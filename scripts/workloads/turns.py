"""Sides that compute by turns, each in a fresh interpreter of its own, and what is made of their times.

Only the standard library is imported here, so that a peer's interpreter can be a side too.
"""

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(__file__).parents[1] / "benchmark.py"
OF_CURVE = "return", "return_error", "share_until"


class Job(NamedTuple):
    """What a worker computes: ``run(program, seed)`` is timed, ``program`` being ``lower()`` compiled.

    ``facts`` are told before the first turn, and ``tally`` of a run's result after each. Without ``lower``, for what is
    no one program of JAX, ``program`` is None.
    """

    lower: Callable[[], Any] | None
    run: Callable[[Any, int], Any]
    facts: dict[str, Any] = {}
    tally: Callable[[Any], dict[str, Any]] = lambda result: {}


class Side(NamedTuple):
    """One that takes turns: its interpreter, what its worker is asked for, and what is added to its environment.

    In place of an interpreter ``python`` may be a folder of packages: this interpreter, which looks there first.
    """

    name: str
    python: str
    request: dict[str, Any]
    environment: dict[str, str] = {}


def all_agents(trainer: Any, num_iterations: int, request: dict[str, Any]) -> Callable[[Any], Any]:
    """A program of purerl's, of keys ``[agents]`` on every device: each agent's frames, updates, parameters and metrics
    after so many iterations of ``trainer``, whose learner counts its updates."""
    from purerl import loops

    train = loops.train(trainer, num_iterations)

    def outcome(key):
        state, metrics = train(key)
        return trainer.frames(state.iteration.low), state.learner.updates.low, state.learner.params, metrics

    return of_all(outcome, request)


def of_all(outcome: Callable[[Any], Any], request: dict[str, Any]) -> Callable[[Any], Any]:
    """A program of purerl's, of keys ``[agents]`` on every device: ``outcome(key)`` of each agent."""
    from purerl import population, trees
    from purerl.population import layouts

    layout = population.layout(request["agents"], lanes=request["lanes"] or None)
    each = layouts.spread(lambda key, _: ((), outcome(key)), layout)
    return lambda keys: each(trees.fill(keys, layout.size), ())[1]


def training(algo: str, env: Any, request: dict[str, Any], **parts: Any) -> Callable[[Any], Any]:
    """A whole training of one of purerl's algorithms, of ``total_steps`` frames with its default settings or those of a
    ``preset``, as a function of its key: its metrics."""
    import dataclasses

    import purerl

    algorithm = getattr(purerl, algo.replace("-", "_"))
    config = algorithm.preset(request["preset"]) if request["preset"] else algorithm.Config()
    train = algorithm.make_train(dataclasses.replace(config, total_steps=request["total_steps"]), env, **parts)
    return lambda key: train(key).metrics


def serve(make_job: Callable[[dict[str, Any]], Job], request: dict[str, Any]) -> None:
    """A worker: compiles, says so on standard output, then runs once for each seed that it reads.

    What libraries and processes that they start print goes to standard error.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _serve(
            make_job(request), request["warmups"], lambda answer: print(json.dumps(answer), file=answers, flush=True)
        )


def _serve(job: Job, warmups: int, say: Callable[[dict[str, Any]], None]) -> None:
    program, facts, finish = _compiled(job.lower) if job.lower else (None, {}, lambda result: result)
    for seed in range(warmups):
        finish(job.run(program, seed))
    say({**facts, **job.facts})
    for line in sys.stdin:
        start, cpu = time.perf_counter(), _cpu_seconds()
        result = finish(job.run(program, int(line)))
        seconds = time.perf_counter() - start
        cores = (_cpu_seconds() - cpu) / seconds
        say({"seconds": seconds, "cores": cores, "peak_bytes": _peak_bytes(), **job.tally(result)})


def _compiled(lower: Callable[[], Any]) -> tuple[Any, dict[str, Any], Callable[[Any], Any]]:
    """The program, what is told of it, and what waits for its results."""
    import jax

    start = time.perf_counter()
    program = lower().compile()
    compile_seconds = time.perf_counter() - start
    memory, devices = program.memory_analysis(), jax.devices()
    total_bytes = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    facts = {
        "compile_seconds": compile_seconds,
        "predicted_peak_bytes": (total_bytes - memory.alias_size_in_bytes) * len(devices),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "jax": jax.__version__,
        "matmul_precision": jax.config.jax_default_matmul_precision or "default",
    }
    return program, facts, jax.block_until_ready


def _cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _peak_bytes() -> int:
    """Of the accelerator's memory, otherwise of this process."""
    jax = sys.modules.get("jax")
    stats = jax.devices()[0].memory_stats() if jax else None
    return (stats or {}).get("peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


class Worker:
    """A fresh interpreter that computes when told to."""

    def __init__(self, side: Side) -> None:
        python, environment = side.python, {**os.environ, **side.environment}
        if Path(python).is_dir():
            first = str(Path(python).resolve())
            python, environment["PYTHONPATH"] = sys.executable, os.pathsep.join([first, *_paths(environment)])
        command = [python, str(SCRIPT), "worker", json.dumps(side.request)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker died: {' '.join(self.process.args)}")
        return json.loads(line)

    def run(self, seed: int) -> dict[str, Any]:
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _paths(environment: dict[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def measure(sides: list[Side], rounds: int, processes: int) -> dict[str, list[dict[str, Any]]]:
    """What the sides say, by name: a list over ``processes``, the facts of each with its ``rounds``.

    In a round every side runs once, in an order that turns round from one to the next, with a seed of that round.
    """
    results: dict[str, list[dict]] = {side.name: [] for side in sides}
    for number in range(processes):
        with contextlib.ExitStack() as stack:
            workers = {}
            for side in sides:
                workers[side.name] = Worker(side)
                stack.callback(workers[side.name].close)
            rounds_of = {name: [] for name in workers}
            for turn in range(rounds):
                for name in sorted(workers, reverse=bool(turn % 2)):
                    rounds_of[name].append(workers[name].run(10 + number * rounds + turn))
            for name, worker in workers.items():
                results[name].append({**worker.facts, "rounds": rounds_of[name]})
    return results


def spread(values: list[float]) -> dict[str, float]:
    """The median, the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def seconds(results: list[dict[str, Any]]) -> list[float]:
    """The time of a run in each process, the median over its rounds."""
    return [statistics.median(r["seconds"] for r in process["rounds"]) for process in results]


def ratio(slow: list[dict[str, Any]], fast: list[dict[str, Any]]) -> dict[str, float]:
    """How much longer ``slow`` took than ``fast`` within a round: the median over rounds, and its spread."""
    pairs = [zip(x["rounds"], y["rounds"], strict=True) for x, y in zip(slow, fast, strict=True)]
    return spread([statistics.median(a["seconds"] / b["seconds"] for a, b in pair) for pair in pairs])


def of_curve(returns: Any, until: float | None = None) -> dict[str, float]:
    """What a run's tally tells of returns while training, ``[agents, time]``, nan where no episode ended.

    The mean over agents of the last twentieth, with its standard error; and with ``until`` how much of the training it
    took until the mean over agents was that high, from 0 to 1: nothing if it never was.
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


def figures(results: list[dict[str, Any]]) -> dict[str, Any]:
    """What every workload tells of a side; of `of_curve`'s, if runs tell them, the mean over runs."""
    runs = [run for process in results for run in process["rounds"]]
    tallied = {name: [run[name] for run in runs] for name in OF_CURVE if all(name in run for run in runs)}
    return {
        "seconds": spread([run["seconds"] for run in runs]),
        **{name: statistics.mean(values) for name, values in tallied.items()},
        "compile_seconds": spread([p["compile_seconds"] for p in results]),
        "peak_mib": spread([max(r["peak_bytes"] for r in p["rounds"]) / 2**20 for p in results]),
        "predicted_peak_mib": spread([p["predicted_peak_bytes"] / 2**20 for p in results]),
        "cores": spread([statistics.median(r["cores"] for r in p["rounds"]) for p in results]),
        **{name: results[0][name] for name in ("device", "devices", "jax", "matmul_precision")},
    }


def show(value: dict[str, float], digits: str = ".3g") -> str:
    """``median [low, high]``."""
    return f"{value['median']:{digits}} [{value['low']:{digits}}, {value['high']:{digits}}]"


def show_figures(value: dict[str, Any]) -> str:
    """What `figures` gives, in words."""
    told = f", return {value['return']:.1f} +- {value['return_error']:.1f}" if "return" in value else ""
    told += f", {value['share_until'] * value['seconds']['median']:.1f} s until it" if "share_until" in value else ""
    return (
        f"compile {show(value['compile_seconds'])} s, peak {show(value['peak_mib'])} MiB, "
        f"cores {show(value['cores'])}{told}"
    )


def speeds(results: dict[str, list[dict[str, Any]]], frames: int, of: str = "", unit: str = "frames") -> dict[str, Any]:
    """The `figures` and frames/s of each side, whose runs take so many ``frames`` unless its facts tell others, by
    name. Prints a line for each, which begins with ``of``. A ``unit`` may be what is counted instead."""
    row = {}
    for name, processes in results.items():
        speed = spread([processes[0].get("frames", frames) / s for s in seconds(processes)])
        row[name] = {f"{unit}_per_second": speed, **figures(processes)}
        print(f"{of}{name}: {show(speed, ',.0f')} {unit}/s, {show_figures(row[name])}", flush=True)
    return row
