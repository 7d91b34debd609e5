"""scripts/on_gpu.py: which stages are measured, that they fit into a visit, and the page that is made of the lines."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import benchmark
import gpu_stages
import on_gpu
import pytest
from workloads import searches

from purerl.cli import benchmark_worker, parsing
from purerl.runs.describing.reading_options import BenchmarkOptions

ROOT = Path(__file__).parent.parent
H100 = "NVIDIA H100 80GB HBM3"
MEASURED = on_gpu.read(ROOT / "docs" / on_gpu.LINES)


def test_the_page_of_gpus_is_made_of_its_lines():
    assert (ROOT / "docs" / on_gpu.PAGE).read_text() == on_gpu.page(MEASURED)


def test_stages_with_a_line_for_the_card_are_skipped_but_for_the_base():
    names = [stage.name for stage in on_gpu.STAGES]
    assert len(set(names)) == len(names) and on_gpu.due(MEASURED, "another") == list(on_gpu.STAGES)
    base = [stage.name for stage in on_gpu.BASE]
    there = {line["stage"] for line in MEASURED if line["card"] == H100}
    assert {"ppo-2048-beside-purejaxrl", "cublaslt-2048", *base} <= there
    left = [stage.name for stage in on_gpu.due(MEASURED, H100)]
    assert left[: len(base)] == base and left[len(base)] == "profile-2048"
    assert set(left) == set(names) - there | set(base)


def test_a_visit_has_time_for_the_base_twice_the_longest_stage_and_the_search():
    longest = max(stage.seconds for stage in on_gpu.STAGES)
    base = sum(stage.seconds for stage in on_gpu.BASE)
    assert longest <= on_gpu.MOST_SECONDS and searches.SAVING_SECONDS < on_gpu.LEAST_SEARCH_SECONDS
    assert 2 * base + longest + on_gpu.LEAST_SEARCH_SECONDS <= on_gpu.arguments([]).seconds <= 600


@pytest.mark.parametrize("scale", ["full", "tiny"])
def test_words_of_stages_are_read(scale, tmp_path):
    (tmp_path / "purejaxrl").mkdir()
    peers = {"rejax": "rejax", "purejaxrl": f"purejaxrl={tmp_path}"}
    for stage in on_gpu.STAGES:
        words = stage.at(scale, peers, "python")
        if stage.call is gpu_stages.alone:
            options = parsing.parse(BenchmarkOptions, "purerl benchmark", words, positional=True)
            given = benchmark_worker.read(shlex.split(options.workloads[0]))
            assert len(options.workloads) == 1 and given.options.num_seeds >= 1
            assert (options.processes, options.rounds) == ((1, 3) if scale == "full" else (1, 1))
        elif stage.call is on_gpu.speed:
            assert benchmark.arguments(words).rounds == (
                3 if scale == "full" and "--rounds 1" not in stage.words else 1
            )
            assert not stage.peer or words[words.index("--peer") + 1] == peers[stage.peer]
        else:
            assert all((ROOT / word.partition("::")[0]).is_file() for word in words if "::" in word)


@pytest.mark.rest
def test_figures_of_purerl_alone_are_those_of_its_benchmark(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["a2c --env CartPole-v1 --num-seeds 2 --total-steps 512 --hidden-sizes 8 --compile quick", "--quick"]
    figures = gpu_stages.alone([*words, "--rounds", "2"])
    assert figures["agents"] == 2 and figures["frames_per_second"] > 0 and figures["spread"].endswith(" %")
    assert {"compile_seconds", "peak_gb", "return"} <= figures.keys()
    with pytest.raises(SystemExit) as stopped:
        gpu_stages.alone(["a2c --env CartPol-v1", "--quick"])
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    "words", ["--only none", "--peers none", "--peers purejaxrl=/none", "--peer-python /none", "--search-code /none"]
)
def test_what_is_not_there_is_refused(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        on_gpu.arguments(words.split())
    assert stopped.value.code == 2 and "none" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.rest
def test_a_stage_is_ended_at_its_limit_with_what_it_started():
    answer, reason = on_gpu.within(["sh", "-c", "echo said >&2; sleep 60"], dict(os.environ), 2)
    assert answer == "" and reason.splitlines()[1:] == ["said"]
    assert on_gpu.within([sys.executable, "-c", "print(1)"], dict(os.environ), 60) == ("1\n", "")
    assert on_gpu.within([sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ), 60)[1]


def test_the_code_that_began_a_search_goes_on_with_it(tmp_path, monkeypatch):
    folder = tmp_path / "searches" / "value-loss"
    assert searches.code(folder, "0123abc", None) == ROOT  # begins it
    assert searches.code(folder, "0123abcdef", None) == ROOT
    assert searches.code(folder, "fedcba9", tmp_path) == tmp_path
    reason = searches.code(folder, "fedcba9", None)
    assert "0123abc" in reason and "--search-code" in reason
    monkeypatch.setenv("PATH", "")  # without git
    assert searches.code(folder, "fedcba9", None) == reason


def test_a_part_of_a_search_counts_its_generations_and_may_fail(tmp_path):
    """With a stand-in for `reproduce`."""
    (tmp_path / "scripts").mkdir()
    script, folder = tmp_path / "scripts" / "reproduce.py", tmp_path / "search"
    script.write_text(
        "import pathlib, sys\n"
        "out = pathlib.Path(sys.argv[-1])\n"
        "out.mkdir(exist_ok=True)\n"
        "(out / 'generations.jsonl').open('a').write('{}\\n')\n"
        "sys.exit(143)\n"
    )
    for before in (0, 1):
        told = searches.go_on(tmp_path, folder, ["words"], 100, dict(os.environ))
        assert (told["before"], told["after"]) == (before, before + 1)
    script.write_text("raise SystemExit(2)")
    with pytest.raises(SystemExit) as stopped:
        searches.go_on(tmp_path, folder, ["words"], 100, dict(os.environ))
    assert stopped.value.code == 2


def test_a_search_that_is_ended_saves_itself():
    saves = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{saves}; print('ready', flush=True); time.sleep(60)"], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    searches.ended(process)
    assert process.returncode == 143


def test_what_a_line_shows():
    line = {"stage": "base-1", "card": "a card", "driver": "", "jax": "1", "purerl": "0", "flags": "--f", "date": "d"}
    line |= {"commit": "abc", "command": "do", "spread": "0.1 %", "figures": {"frames_per_second": 1234.0}}
    beside = {
        **line,
        "figures": {"frames_per_second": 4.0, "peer": {"name": "rejax", "frames_per_second": 2.0}, "ratio": 2.0},
    }
    kernels = {"busy": 0.9, "longest": [["fusion.1", 1000, 0.25, None]]}
    text = on_gpu.page([{**line, "stage": "profile-2048", "figures": kernels}, beside, line])
    assert "| base-1 | 1,234 | 0.1 % |" in text and "| rejax 2 | **2.0** |" in text and "`do` `XLA_FLAGS=--f`" in text
    assert "busy 0.9" in text and "| `fusion.1` | 1,000 | 25.0% |  |" in text
    assert text.index("base-1") < text.index("profile-2048")


def test_the_page_alone_is_written_without_a_visit(tmp_path):
    (tmp_path / on_gpu.LINES).write_text("")
    command = [sys.executable, "scripts/on_gpu.py", "--seconds", "0", "--out", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60).returncode == 0
    assert (tmp_path / on_gpu.PAGE).read_text() == on_gpu.page([])
