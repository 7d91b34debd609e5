"""Commands in a process of their own: its exit code, whatever it says, or a line that tells what became of it."""

import subprocess
import sys
import time

import psutil
import pytest

from purerl import cli
from purerl.cli import limited
from purerl.hosts import processes
from purerl.version import __version__

SAYS = "import os, sys, time; word = int(sys.argv[2]); "
"""A program in place of purerl's, which gets the same file descriptors."""


@pytest.fixture
def instead(monkeypatch):
    """Has another program run in place of purerl's."""
    started = []

    def begin(program):
        def interpreter(module, *words, env, fds):
            command = [sys.executable, "-c", SAYS + program, *words]
            started.append(subprocess.Popen(command, env=env, pass_fds=fds, start_new_session=True))
            return started[0]

        monkeypatch.setattr(processes, "interpreter", interpreter)
        return started

    return begin


def test_the_exit_code_is_that_of_the_command(capfd):
    assert limited.run(["--version"], "it", 100, 0) == 0
    assert limited.run(["nope"], "it", 0, 4) == cli.EXIT_BAD_INPUT
    out, err = capfd.readouterr()
    assert out == f"purerl {__version__}\n" and err.startswith("purerl: error: command = 'nope':")


@pytest.mark.parametrize(
    ("program", "limits", "code", "line"),
    [
        ("os.write(word, bytes([3])); os.abort()", (0, 0), 3, ""),  # all was said and done
        ("os.abort()", (0, 0), 1, "it: its process was killed by signal 6 (SIGABRT) before it was done"),
        ("os._exit(0)", (0, 0), 1, "it: its process ended with code 0 before it was done"),
        ("time.sleep(100)", (0.2, 0), 6, "it: took longer than limit_seconds = 0.2, and was ended"),
        ("x = b'1' * 2**28; time.sleep(100)", (0, 0.1), 4, "it: held more than limit_gigabytes = 0.1, and was ended"),
    ],
)
def test_what_becomes_of_a_process_is_told(program, limits, code, line, instead, capsys):
    started = instead(program)
    assert limited.run([], "it", *limits) == code
    assert capsys.readouterr().err == (f"purerl: error: {line}\n" if line else "")
    assert started[0].returncode is not None


@pytest.mark.rest
def test_what_it_started_ends_with_it(instead, tmp_path, capsys):
    """Also if it does not listen to the signal to end."""
    number = tmp_path / "pid"
    instead(
        "import subprocess, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"print(subprocess.Popen(['sleep', '100']).pid, file=open({str(number)!r}, 'w'), flush=True); time.sleep(100)"
    )
    assert limited.run([], "it", 1.0, 0) == cli.EXIT_TIME
    until = time.monotonic() + 5
    while psutil.pid_exists(int(number.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not psutil.pid_exists(int(number.read_text()))


def test_a_crash_may_be_the_fault_of_what_was_read(instead, capsys):
    instead("os.abort()")
    assert limited.run([], "it", 0, 0, crashed=cli.EXIT_BAD_INPUT) == cli.EXIT_BAD_INPUT
    assert "was killed by signal 6" in capsys.readouterr().err
