"""What is needed for a record alone ends no run: versions that Python has no metadata of, pictures."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import purerl
from purerl.runs.describing import sweeps
from purerl.version import versions

WITHOUT_METADATA = """
import importlib.metadata as metadata

known = metadata.Distribution.from_name.__func__

def from_name(cls, name):
    if name == "purerl":
        raise metadata.PackageNotFoundError(name)
    return known(cls, name)

metadata.Distribution.from_name = classmethod(from_name)
"""
SIZES = ["--num-envs", "2", "--num-steps", "8", "--num-minibatches", "1", "--num-epochs", "1", "--hidden-sizes", "4"]
SMALL = [*SIZES, "--eval-episodes", "1"]


@pytest.mark.rest
def test_an_uninstalled_copy_trains_saves_and_resumes_even_where_no_picture_can_be_written(tmp_path):
    shutil.copytree(Path(purerl.__file__).parent, tmp_path / "purerl")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_METADATA)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"}

    def run(*args):
        command = [sys.executable, "-m", "purerl.cli", *args]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version") == f"purerl {purerl.__version__}\n"
    run("train", "ppo", "--env", "CartPole-v1", *SMALL, "--total-steps", "64", "--out", "run")
    picture = tmp_path / "run" / "curve.png"
    picture.unlink()
    picture.mkdir()
    (picture / "in-the-way").touch()
    run("resume", "run", "--total-steps", "128")
    run("eval", "run", "--episodes", "1")
    run("export", "run", "--to", "numpy")


def test_the_ranking_of_a_sweep_is_kept_where_its_picture_cannot_be_written(tmp_path, capsys):
    (tmp_path / "sweep.png").mkdir()
    sweeps.write_sweep(tmp_path, sweeps.rank({"gamma": [0.9, 0.99]}, np.array([[1.0], [2.0]])))
    assert [row["config"] for row in json.loads((tmp_path / "sweep.json").read_text())["ranked"]] == [1, 0]
    assert "sweep.png" in capsys.readouterr().err


def test_a_package_that_is_not_there_is_left_out():
    assert versions(["purerl", "no-such-package"]) == {"purerl": purerl.__version__}
