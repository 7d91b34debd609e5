"""Results have the standard output for themselves, whatever environments print there."""

import json
import os
import subprocess
import sys

import pytest

from purerl import cli
from purerl.display import output

LOUD = """
import atexit, os, subprocess
import gymnasium, numpy
from gymnasium import spaces

class Loud(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (1,), numpy.float32), spaces.Discrete(2)

    def __init__(self):
        print("made")
        subprocess.run(["echo", "of a child"])
        atexit.register(print, "ended")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        os.write(1, b"compiled code\\n")
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        print("step")
        return numpy.zeros(1, numpy.float32), 1.0, True, False, {}

    def close(self):
        print("closed")
"""


@pytest.mark.rest
def test_what_environments_print_goes_to_the_standard_error(tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    code = "from purerl.cli import entry; entry(['check-env', 'loud:Loud', '--steps', '2', '--envs', '1', '--json'])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert json.loads(made.stdout)["terminated"] == 2 and made.returncode == 0
    assert all(words in made.stderr for words in ("made", "of a child", "compiled code", "step", "closed", "ended"))


def test_all_is_put_back(capfd):
    output.divert()
    print("without a command")
    with pytest.raises(KeyError), output.command():
        print("before")
        output.divert()
        output.divert()
        print("aside")
        os.write(1, b"aside\n")
        output.show("result")
        raise KeyError
    print("after")
    out, err = capfd.readouterr()
    assert out.split("\n") == ["without a command", "before", "result", "after", ""] and err == "aside\naside\n"


MOVES = """
import os, tempfile
from loud import Loud

class Moves(Loud):
    def __init__(self):
        os.chdir(tempfile.gettempdir())
"""


@pytest.mark.rest
def test_an_environment_that_changes_the_folder_changes_no_path(tmp_path, monkeypatch, capsys):
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "moves.py").write_text(MOVES)
    small = ["--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--eval-episodes", "2", "--workers", "none"]
    for args in (
        ["train", "ppo", "--env", "moves:Moves", *small, "--total-steps", "16", "--out", "run"],
        ["eval", "run", "--episodes", "2", "--trust"],
        ["export", "run", "--to", "numpy"],
    ):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit, match="0"):
            cli.main(args)
    assert (tmp_path / "run/policy-numpy").is_dir()
    assert json.loads((tmp_path / "run/summary.json").read_text())["env_steps"] == 16
    said = capsys.readouterr()
    assert said.err.count("; run\n") == 1 and "run/policy-numpy\n" in said.out


THREADS = """
import threading
from loud import Loud

class Threads(Loud):
    def __init__(self):
        threading.Thread(target=threading.Event().wait).start()
"""


def test_threads_of_an_environment_do_not_keep_the_command(tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "threads.py").write_text(THREADS)
    code = "from purerl import cli; cli.LEFT_SECONDS = 0.1; cli.entry(['check-env', 'threads:Threads', '--steps', '2'])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, timeout=100)
    assert made.returncode == 0 and made.stdout.startswith(b"threads:Threads passes all checks")
