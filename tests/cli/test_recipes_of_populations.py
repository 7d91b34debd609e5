"""Recipes for searches that other engines direct: Optuna's trials as a population, and jobs over machines."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from commands import run
from test_documentation import DOCS, blocks

from purerl.runs.reading import overview

PAGE = blocks(DOCS / "populations.md")
SMALL = ["--total-steps", "1024", "--num-seeds", "2", "--eval-episodes", "2", "--hidden-sizes", "8"]
SMALL += ["--compile", "quick"]


@pytest.mark.rest
def test_every_trial_of_a_population_is_told():
    """Rates of up to 1e30 make trainings diverge: their trials have failed, and none is left open or has a nan."""
    optuna = pytest.importorskip("optuna")
    [text] = [block.text for block in PAGE if "optuna" in block.text and block.language == "python"]
    for large, small in (("50_000", "2048"), (", 16\n", ", 4\n"), ("1e-1,", "1e30,")):
        assert large in text
        text = text.replace(large, small)
    made = {}
    exec(compile(text, "populations.md", "exec"), made)
    trials = made["study"].trials
    complete, failed = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.FAIL
    assert len(trials) == 16 and {trial.state for trial in trials} == {complete, failed}
    assert all(np.isfinite(trial.value) == (trial.state == complete) for trial in trials if trial.value is not None)
    best = max((trial for trial in trials if trial.state == complete), key=lambda trial: trial.value)
    assert made["study"].best_params == best.params and best.params["learning_rate"] < 1e10


@pytest.mark.rest
def test_jobs_of_an_array_are_listed_and_compared(tmp_path, monkeypatch, capsys):
    """Two jobs of the script, as Slurm starts them; each is a run below one folder."""
    [script] = [block.text for block in PAGE if block.language == "bash"]
    (tmp_path / "array.sh").write_text(script)
    (tmp_path / "purerl").write_text(f'#!/bin/sh\nexec {sys.executable} -m purerl.cli "$@"\n')
    (tmp_path / "purerl").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for task in (1, 3):
        env = {**os.environ, "PATH": path, "SLURM_ARRAY_TASK_ID": str(task)}
        subprocess.run([shutil.which("sh"), "array.sh", *SMALL], env=env, check=True, timeout=300, capture_output=True)
    listed = overview.answers(tmp_path / "runs").runs()["runs"]
    assert {row["path"] for row in listed} == {"array/rate-1e-3", "array/rate-1e-2"}
    assert all(row["status"] == "completed" and row["members"] == 2 for row in listed)
    run("compare", "runs/array/rate-1e-3", "runs/array/rate-1e-2")
    assert "runs/array/rate-1e-2" in capsys.readouterr().out.replace("\n", "")
