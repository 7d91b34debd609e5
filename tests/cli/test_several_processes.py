"""Commands in several processes, over loopback; scripts/several_processes.py does more of it."""

import json
import re

import pytest
import several_processes as several

from purerl import processes

TINY = ("--env", "CartPole-v1", "--num-envs", "4", "--hidden-sizes", "8", "--compile", "quick", "--eval-episodes", "2")
TRAIN = ["train", "a2c", *TINY, "--num-seeds", "2", "--total-steps", "2000", "--checkpoint-seconds", "0"]


@pytest.mark.weekly
def test_two_processes_come_to_what_one_does(tmp_path):
    """The parts stay: store/test_pieces.py, population/test_splitting.py, test_channel.py."""
    one, two = tmp_path / "one", tmp_path / "two"
    running = several.together([*TRAIN, "--out", str(two)], devices=1)
    alone = several.start([*TRAIN, "--out", str(one)])
    for process in (*running, alone):
        result = several.ended(process, 100)
        assert result.code == 0, result.output
    assert several.different(one, two) == [] and len(several.contents(one)) > 6
    device = json.loads((two / "summary.json").read_text())["device"]
    assert (device["count"], device["processes"]) == (2, 2)


@pytest.mark.weekly
def test_a_search_in_two_processes(tmp_path):
    args = ["evolve", "value-loss", *TINY[:8], "--population", "4", "--generations", "2", "--total-steps", "512"]
    one, two, _, _ = several.both(args, tmp_path)
    assert several.different(one, two) == [] and "artefact.json" in several.contents(one)


@pytest.mark.weekly
@pytest.mark.parametrize("who", [1, 0])
def test_a_death_ends_the_others_and_loses_nothing(who, tmp_path, monkeypatch):
    monkeypatch.setattr(several, "KILLED", [*TRAIN, "--total-steps", "400000"])
    whole, directory = tmp_path / "whole", tmp_path / "run"
    assert several.ended(several.start([*several.KILLED, "--out", str(whole)]), 100).code == 0
    other, seconds = several.killed(who, directory, [], 0.0)
    assert several.documented(who, other, seconds), other.output
    result = several.ended(several.start(["resume", str(directory)]), 100)
    assert result.code == 0 and not set(several.RESULTS) & set(several.different(whole, directory)), result.output


@pytest.mark.weekly
def test_a_signal_to_one_saves_and_ends_all(tmp_path):
    directory = tmp_path / "run"
    running = several.together([*TRAIN, "--total-steps", "1000000000", "--out", str(directory)], devices=1)
    several.until(lambda: (directory / "times.jsonl").exists() and (directory / "times.jsonl").read_text(), running)
    running[1].terminate()
    assert [several.ended(process, 60).code for process in running] == [143, 143]
    assert json.loads((directory / "summary.json").read_text())["status"] == "interrupted"
    assert several.has_checkpoints(directory)


@pytest.mark.weekly
def test_bad_input_ends_all(tmp_path):
    """Each finds what all find; what the first one alone finds ends the others, too."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "somebodys").write_text("own")
    for args in (["--total-steps", "1"], ["--out", str(tmp_path / "run")]):
        ends = [several.ended(process, 60) for process in several.together([*TRAIN, *args], devices=1)]
        assert [each.code for each in ends] == [2, 2], ends
        assert all("Traceback" not in each.output and "purerl: error:" in each.output for each in ends)


@pytest.mark.weekly
def test_a_sweep_of_programs_goes_on_in_several_processes(tmp_path):
    args = ["sweep", *TRAIN[1:], "--hidden-sizes", "4,8"]
    one, two, _, _ = several.both(args, tmp_path)
    running = several.together(["resume", str(two), "--total-steps", "3000"], devices=1)
    alone = several.start(["resume", str(one), "--total-steps", "3000"])
    assert [several.ended(process, 100).code for process in (*running, alone)] == [0, 0, 0]
    assert several.different(one, two) == [] and "1/checkpoints/0/46" in several.contents(one)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"},
            "Slurm tells of 4 processes, .* number 2.*--processes auto",
        ),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "Slurm tells of 4"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "Open MPI tells of 2"),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, "MPI tells of 2.*--processes ADDRESS,N,ID"),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "^$"),
        ({"SLURM_NTASKS": "4"}, "^$"),
    ],
)
def test_a_process_of_several_that_runs_alone_says_so(environ, words):
    assert re.search(words, processes.beside(environ))
