"""A copy of the package's folder on the path, of which Python has no metadata."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import purerl
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


def test_it_trains_saves_and_resumes(tmp_path):
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
    run("resume", "run", "--total-steps", "128")
    run("eval", "run", "--episodes", "1")
    run("export", "run", "--to", "numpy")


def test_a_package_that_is_not_there_is_left_out():
    assert versions(["purerl", "no-such-package"]) == {"purerl": purerl.__version__}
