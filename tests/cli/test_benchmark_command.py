"""The command ``purerl benchmark``: its files, exit codes and lines. Processes are stand-ins but in the last test."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from commands import run

from purerl import catalogue
from purerl.benchmarks import turns
from purerl.cli import benchmark

ROOT = Path(__file__).parents[2]
MACHINE = {
    "device": {"platform": "cpu", "kind": "cpu", "count": 2, "processes": 1, "cores": 2},
    "versions": {"python": "3.11.7", "purerl": "0.1.0", "jax": "0.10.2", "jaxlib": "0.10.2"},
    "flags": {},
}
OWN = "a2c --env CartPole-v1 --num-seeds 3 --total-steps 2048"


@pytest.fixture
def processes(monkeypatch, tmp_path):
    """Stand-ins in an empty folder: of 1000 frames in 2 seconds, then 4 and so on; those named in the list fail."""
    monkeypatch.chdir(tmp_path)
    failing, asked = {}, []

    def measure_once(sides, rounds, number):
        (side,) = sides
        asked.append((side.name, rounds, number, side.request["warmups"]))
        if number == failing.get(side.name, (None,))[0]:
            raise turns.Failed(side.name, failing[side.name][1], ["at first", "the last line"])
        run = {"seconds": 2.0 * (number + 1), "cores": 1.0, "peak_bytes": 2**20, "peak_of": "process"}
        facts = {"frames": 1000, "compile_seconds": 7.0, "compile_cached": False, "machine": MACHINE}
        return {side.name: {**facts, "rounds": [run] * rounds}}

    monkeypatch.setattr(turns, "measure_once", measure_once)
    monkeypatch.setattr(catalogue, "is_installed", lambda family: family != "brax")
    measure_once.failing, measure_once.asked = failing, asked
    return measure_once


def written(name="benchmark.json"):
    return json.loads(Path(name).read_text())


def test_figures_are_printed_and_written(processes, capsys):
    run("benchmark", OWN, "--processes", 2, "--rounds", 1)
    content = written()
    row = content["workloads"][OWN]
    assert row["command"] == f"purerl train {OWN}" and row["agents"] == 3
    assert row["settings"]["total_steps"] == 2048 and row["settings"]["env_params"] == {}
    assert row["frames_per_second"] == {"median": 375, "low": 250, "high": 500} and row["peak_mib"]["median"] == 1
    assert (content["processes"], content["rounds"], content["warmups"]) == (2, 1, 2)
    told = capsys.readouterr()
    assert "2 processes, 1 round each" in told.out and "purerl 0.1.0" in told.out
    assert told.err.splitlines() == [
        f"{OWN}: process 1 of 2: 500 frames/s so far",
        f"{OWN}: process 2 of 2: 375 frames/s so far",
    ]


@pytest.mark.parametrize("load", [0.2, 1.5])
def test_a_row_of_the_table_and_the_load(load, processes, capsys, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 9.0, 9.0))
    run("benchmark", "dqn", "--processes", 2)
    told = capsys.readouterr().out
    assert ("load 1.5 before the first process: other programs computed" in told) == (load == 1.5)
    (row,) = [line for line in told.splitlines() if "dqn" in line]
    assert [each.strip() for each in row.strip("│").split("│")] == ["dqn", "375 [250, 500]", "7.0", "1", "1.0", ""]


def test_json_is_what_is_written(processes, capsys):
    run("benchmark", "dqn", "--quick", "--json", "--out", "figures.json")
    assert json.loads(capsys.readouterr().out) == written("figures.json")


def test_all_that_is_installed_is_measured(processes, capsys):
    run("benchmark", "--quick")
    names = ["ppo-cartpole-1", "ppo-cartpole-64", "ppo-cartpole-2048", "dqn", "sac", "minatar", "host"]
    assert list(written()["workloads"]) == names and [name for name, *_ in processes.asked] == names
    assert {tuple(rest) for _, *rest in processes.asked} == {(1, 0, 1)}
    assert "workload = 'brax': brax is not installed; pip install 'purerl[brax]'; left out" in capsys.readouterr().err
    run("benchmark", "dqn", "ppo-cartpole-64", "dqn", "--overwrite")
    assert set(written()["workloads"]) == {"dqn", "ppo-cartpole-64"}
    assert written()["workloads"]["dqn"]["command"].endswith("--total-steps 100000")
    assert len(processes.asked) == len(names) + 2 * 3


@pytest.mark.parametrize(("code", "expect"), [(1, 1), (2, 2), (4, 4), (-9, 1)])
def test_what_was_measured_before_a_failure_is_kept(code, expect, processes, capsys):
    processes.failing["dqn"] = (1, code)
    run("benchmark", "dqn", "sac", "--processes", 3, expect=expect)
    rows, told = written()["workloads"], capsys.readouterr()
    assert rows["dqn"]["failed"] == {"process": 2, "code": code, "line": "the last line"}
    assert rows["dqn"]["frames_per_second"] == {"median": 500, "low": 500, "high": 500}
    assert rows["sac"]["frames_per_second"]["low"] == pytest.approx(1000 / 6) and "failed" not in rows["sac"]
    assert "dqn: its process" in told.err and "the last line" in told.err and "at first" not in told.err
    marked = [line for line in told.out.splitlines() if "!" in line]
    assert len(marked) == 2 and "500!" in marked[0]
    assert marked[1] == f"!: dqn: process 2 of 3 failed, with code {code}: the last line"
    run("benchmark", "--compare", "benchmark.json", "benchmark.json")
    assert "fewer processes in benchmark.json, because one failed: dqn" in capsys.readouterr().out


def test_a_workload_without_figures_has_a_row(processes, capsys):
    processes.failing["dqn"] = (0, 1)
    run("benchmark", "dqn", expect=1)
    assert "frames_per_second" not in written()["workloads"]["dqn"] and "failed" in capsys.readouterr().out
    run("benchmark", "--compare", "benchmark.json", "benchmark.json", expect=2)
    assert "no measured workload in common" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["brax"], "workload = 'brax': brax is not installed; pip install 'purerl[brax]'"),
        (["ppo-cartpol"], "workload = 'ppo-cartpol': unknown; nearest: ppo-cartpole"),
        (["ppo --env CartPole-v1 --out x"], "has no effect in a benchmark"),
        (["ppo --env CartPole-v1 --shards 2"], "shards = 2: has no effect in a benchmark"),
        (["td3-bc --data x.safetensors"], "learns from recorded play alone, so it has no frames/s"),
        (["ppo --env 'CartPole-v1"], "No closing quotation"),
        (["dqn", "--out", "no/such/folder.json"], "must be a file in an existing directory"),
        (["dqn", "--processes", "-1"], "processes = -1"),
        (["dqn", "--compare", "a.json", "b.json"], "needs two files, and no workloads"),
        (["--compare", "a.json"], "needs two files, and no workloads"),
        (["--compare", "a.json", "b.json"], "a.json"),
        (["--compare", "a.json", "b.json", "--quick"], "quick = True: has no effect"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(args, text, processes, capsys):
    run("benchmark", *args, expect=2)
    assert text in capsys.readouterr().err and not processes.asked and not list(Path().iterdir())


def test_a_file_is_replaced_only_if_it_is_of_figures_and_that_is_asked_for(processes, capsys):
    run("benchmark", "dqn", "--quick")
    before = Path("benchmark.json").read_text()
    run("benchmark", "dqn", "--quick", expect=2)
    assert "already exists; --overwrite replaces it" in capsys.readouterr().err
    assert Path("benchmark.json").read_text() == before
    run("benchmark", "dqn", "--quick", "--overwrite")
    Path("notes.json").write_text('{"mine": 1}')
    run("benchmark", "dqn", "--quick", "--overwrite", "--out", "notes.json", expect=2)
    assert "is not replaced (notes.json: is not a file of purerl benchmark)" in capsys.readouterr().err
    assert written("notes.json") == {"mine": 1}


def test_two_files_are_compared(processes, capsys):
    run("benchmark", "dqn", "sac", "--processes", 1, "--out", "one.json")
    run("benchmark", "dqn", "--processes", 3, "--out", "two.json")
    capsys.readouterr()
    run("benchmark", "--compare", "one.json", "two.json")
    told = capsys.readouterr().out
    assert "0.50 [0.33, 1.00]" in told  # 500, and 500, 250 and 167 frames/s
    assert "processes: 1, then 3" in told and "only in one.json: sac" in told
    run("benchmark", "--compare", "one.json", "two.json", "--json")
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert row["ratio"] == {"median": 0.5, "low": pytest.approx(1 / 3), "high": 1.0}
    run("benchmark", "dqn", "--quick", "--out", "quick.json")
    run("benchmark", "--compare", "one.json", "quick.json", expect=2)
    assert "dqn has other settings in quick.json" in capsys.readouterr().err


def test_exit_codes():
    assert [benchmark.exit_code(codes) for codes in ([], [3], [2, 1], [-9], [4])] == [0, 1, 2, 1, 4]


CHOOSES = """
from purerl.cli import benchmark
from purerl.benchmarks import files
from purerl.benchmarks.measuring import Sizes
assert benchmark.choice((), True) and files.begun(Sizes(1, 1, 1))
from jax._src import xla_bridge
assert not xla_bridge._backends
"""


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@pytest.mark.rest
def test_the_command_itself_takes_no_device():
    """It would hold the memory of a GPU that its processes need."""
    assert subprocess.run([sys.executable, "-c", CHOOSES], env=environment(), timeout=120).returncode == 0


@pytest.mark.rest
def test_a_signal_ends_all_processes_and_keeps_what_was_measured(tmp_path):
    small = "--num-envs 4 --num-steps 16 --hidden-sizes 8 --compile quick"
    words = [f"a2c --env CartPole-v1 --total-steps {steps} {small}" for steps in (1024, 10**9)]
    command = [sys.executable, "-m", "purerl.cli", "benchmark", *words, "--quick"]
    process = subprocess.Popen(command, env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert "process 1 of 1" in process.stderr.readline()
    deadline = time.monotonic() + 60
    while not (workers := psutil.Process(process.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.terminate()
    assert process.wait(60) == 143
    assert workers and not [each for each in workers if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    (row,) = json.loads((tmp_path / "benchmark.json").read_text())["workloads"].values()
    assert row["frames"] == 1024 and "failed" not in row and process.stderr.read() == ""


@pytest.mark.rest
def test_real_processes(tmp_path):
    """Two agents, an environment that is unknown, and one that the host steps; all that is printed is JSON."""
    small = "--num-envs 4 --num-steps 16 --hidden-sizes 8"
    words = [f"a2c --env CartPole-v1 --num-seeds 2 --total-steps 1000 {small} --compile quick", "a2c --env CartPol-v1"]
    words += [f"a2c --env gymnasium/CartPole-v1 --total-steps 2560 {small} --compile quick --workers none"]
    command = [sys.executable, "-m", "purerl.cli", "benchmark", *words, "--quick", "--json"]
    ended = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    rows = list(json.loads(ended.stdout)["workloads"].values())
    assert ended.returncode == 2 and rows[1]["failed"]["code"] == 2 and "unknown environment" in ended.stderr
    assert rows[0]["frames"] == 2 * 960 and rows[2]["frames"] == 2560 * 8 // 10
    for row in (rows[0], rows[2]):
        assert row["frames_per_second"]["median"] > 0 and row["compile_seconds"]["median"] > 0
        assert row["device"]["kind"] == "cpu" and row["versions"]["jax"] and row["peak_mib"]["median"] > 50
        assert row["return"] > 5 and row["peak_of"] == "process"
    assert rows[0]["frames_per_second"]["median"] == pytest.approx(rows[0]["frames"] / rows[0]["seconds"]["median"])
