"""Turns: what is timed and what is not, in which order, and what is told of a process that fails."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import psutil
import pytest

from purerl.benchmarks import turns

ROOT = Path(__file__).parents[2]

WORKER = """
import json, os, sys
request = json.loads(sys.argv[1])
print("said at first", file=sys.stderr)
if "fails" in request:
    print("the reason\\n", file=sys.stderr)
    sys.exit(request["fails"])
print(json.dumps({"facts": request["name"]}), flush=True)
for line in sys.stdin:
    if "dies" in request:
        os.kill(os.getpid(), request["dies"])
    print(json.dumps({"seconds": float(line), "variable": os.environ.get("OF_A_SIDE")}), flush=True)
"""
"""A worker that takes as many seconds as its seed is."""


def side(name, environment=None, **request):
    command = [sys.executable, "-S", "-c", WORKER]
    return turns.Side(name, command, {"name": name, **request}, environment or {})


class Clock:
    """Seconds that pass only where they are said to."""

    def __init__(self):
        self.now, self.events = 0.0, []

    def __call__(self):
        return self.now

    def passes(self, seconds, event):
        self.now += seconds
        self.events.append(event)


def test_neither_compiling_nor_warming_up_is_timed_and_results_are_waited_for(monkeypatch):
    clock, said = Clock(), []
    monkeypatch.setattr(turns.time, "perf_counter", clock)
    monkeypatch.setattr(sys, "stdin", io.StringIO("10\n11\n"))

    class Dispatched:
        def block_until_ready(self):
            clock.passes(10, "waits")
            return self

    def lower():
        clock.passes(1000, "compiles")
        return jax.jit(lambda x: x).lower(np.float32(0))

    def run(program, seed):
        clock.passes(1, f"runs {seed}")
        return Dispatched()

    def tally(result):
        clock.passes(100, "counts")
        return {"counted": 3}

    turns._serve(turns.Job(lower, run, {"frames": 7}, tally), 2, said.append)
    facts, *rounds = said
    assert facts["compile_seconds"] == 1000 and facts["frames"] == 7
    assert [each["seconds"] for each in rounds] == [11, 11] and rounds[0]["counted"] == 3
    warm, timed = ["runs 0", "waits", "runs 1", "waits"], ["runs 10", "waits", "counts", "runs 11", "waits", "counts"]
    assert clock.events == ["compiles", *warm, *timed]


@pytest.mark.parametrize("cached", [True, False])
def test_a_cache_of_compiled_programs_is_told(cached, monkeypatch, tmp_path):
    said, before = [], jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path) if cached else None)
    try:
        turns._serve(turns.Job(lambda: jax.jit(lambda x: x).lower(1.0), lambda *_: 0), 0, said.append)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert said[0]["compile_cached"] is cached


def test_what_is_no_program_is_not_warmed_up(monkeypatch):
    said, seeds = [], []
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n"))
    turns._serve(turns.Job(None, lambda _, seed: seeds.append(seed), tally=lambda _: {"seconds": 9}), 2, said.append)
    assert seeds == [5] and said[0] == {} and said[1]["seconds"] == 9 and said[1]["peak_of"] == "process"


@pytest.mark.parametrize(("program", "peak"), [("a program", (5, "device")), (None, (7 * 1024, "process"))])
def test_the_peak_is_that_of_the_device_if_it_tells_it(program, peak, monkeypatch):
    """What is no program of this process, such as a training on the host, leaves the device alone."""
    device = SimpleNamespace(memory_stats=lambda: {"peak_bytes_in_use": 5})
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda: [device]))
    usage = {turns.resource.RUSAGE_SELF: 3, turns.resource.RUSAGE_CHILDREN: 7}
    monkeypatch.setattr(turns.resource, "getrusage", lambda kind: SimpleNamespace(ru_maxrss=usage[kind]))
    monkeypatch.setattr(sys, "platform", "linux")
    told = turns._peak(program)
    assert (told["peak_bytes"], told["peak_of"]) == peak
    if program is None:
        monkeypatch.setattr(sys, "platform", "darwin")  # which counts bytes
        assert turns._peak(None)["peak_bytes"] == 7


@pytest.mark.parametrize(("rounds", "processes"), [(1, 4), (3, 2), (2, 2)])
def test_each_side_is_the_first_as_often_as_the_other(rounds, processes, monkeypatch):
    """Also with an odd number of rounds, over processes; each round has a seed of its own, the same for both."""
    runs = []

    class Worker:
        def __init__(self, side):
            self.name, self.facts = side.name, {"of": side.name}

        def run(self, seed):
            runs.append((seed, self.name))
            return {"seconds": 1.0}

        def close(self):
            runs.append((None, self.name))

    monkeypatch.setattr(turns, "Worker", Worker)
    told = turns.measure([side("a"), side("b")], rounds, processes)
    timed = [run for run in runs if run[0] is not None]
    first, second = timed[::2], timed[1::2]
    assert [name for _, name in first] == ["a", "b"] * (rounds * processes // 2)
    assert [seed for seed, _ in first] == [seed for seed, _ in second] == list(range(10, 10 + rounds * processes))
    assert told["b"] == [{"of": "b", "rounds": [{"seconds": 1.0}] * rounds}] * processes
    assert len(runs) - len(timed) == 2 * processes  # all closed


def test_workers_answer_by_turns():
    told = turns.measure([side("a", {"OF_A_SIDE": "here"}), side("b")], rounds=2, processes=1)
    rounds = [{"seconds": 10.0, "variable": "here"}, {"seconds": 11.0, "variable": "here"}]
    assert told["a"] == [{"facts": "a", "rounds": rounds}] and told["b"][0]["rounds"][1]["variable"] is None
    assert not turns._open


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        ({"fails": 3}, 3, "a: its process ended with code 3: the reason"),
        ({"dies": int(signal.SIGKILL)}, -signal.SIGKILL, "a: its process was killed by SIGKILL: said at first"),
    ],
)
def test_a_process_that_fails_is_told_with_its_last_line(request_, code, text):
    with pytest.raises(turns.Failed) as failed:
        turns.measure_once([side("a", **request_)], 1, 0)
    assert (failed.value.code, str(failed.value)) == (code, text) and failed.value.lines[0] == "said at first"
    assert not turns._open


def test_all_workers_are_ended_by_another_thread(monkeypatch):
    monkeypatch.setattr(turns, "_leaving", threading.Event())
    worker = turns.Worker(side("a"))
    turns.close_all()
    assert worker.process.poll() == -signal.SIGTERM
    worker.close()


def of_seconds(*processes):
    return [{"rounds": [{"seconds": seconds} for seconds in rounds]} for rounds in processes]


def test_medians_ranges_and_ratios_by_hand():
    fast, slow = of_seconds((1, 2, 9), (4, 4, 4), (2, 3, 1)), of_seconds((2, 6, 9), (4, 8, 12), (8, 3, 2))
    assert turns.seconds(fast) == [2, 4, 2]
    assert turns.rate(fast, 80) == {"median": 40, "low": 20, "high": 40}
    # within rounds 2, 3, 1; 1, 2, 3; 4, 1, 2
    assert turns.ratio(slow, fast) == {"median": 2, "low": 2, "high": 2}
    assert turns.ratio(of_seconds((3, 3)), of_seconds((1, 2))) == {"median": 2.25, "low": 2.25, "high": 2.25}
    assert turns.spread([3.0, 1.0]) == {"median": 2.0, "low": 1.0, "high": 3.0}


def test_a_window_lies_between_stamps():
    """Of 200 frames those from 20 to 180: the first 100 take 10 s, the others 20 s."""
    window = turns.Window.of(200)
    assert (window.first, window.last, window.frames) == (20, 180, 160)
    assert window.seconds([(0, 0.0), (100, 10.0), (200, 30.0)]) == pytest.approx(26 - 2)
    with pytest.raises(SystemExit, match="before 180 frames"):
        window.seconds([(0, 0.0), (100, 10.0)])


def test_what_is_told_of_returns():
    """Forty times, of which the last two count; one agent ends no episode then."""
    returns = np.zeros((3, 40))
    returns[:, -2:] = [[1, np.nan], [2, 4], [np.nan, np.nan]]
    told = turns.of_curve(returns, until=2.0)
    assert told["return"] == 2.0 and told["return_error"] == pytest.approx(1 / 2**0.5)  # of 1 and 3
    assert told["share_until"] == 1.0  # of the second agent alone, at the end
    assert turns.of_curve([[None, None]]) == {}


def test_a_command_is_read_and_its_last_lines_are_told():
    lines = []
    turns.run([sys.executable, "-c", "print(1); print(2)"], lines.append)
    assert lines == ["1\n", "2\n"]
    with pytest.raises(SystemExit, match="the reason"):
        turns.run([sys.executable, "-c", "raise SystemExit('the reason')"])


OUTER = """
import sys
from purerl.benchmarks import turns
turns.run([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"], sys.stdout.write)
"""


def test_a_command_ends_with_the_process_that_runs_it():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    outer = subprocess.Popen([sys.executable, "-c", OUTER], stdout=subprocess.PIPE, text=True, env=environment)
    inner = psutil.Process(int(outer.stdout.readline()))
    outer.terminate()
    assert outer.wait(30) == 128 + signal.SIGTERM
    gone, _ = psutil.wait_procs([inner], 30)
    assert gone
