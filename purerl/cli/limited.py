"""Commands that a process of their own carries out, within limits: ``python -m purerl.cli.limited FD FD ARGS``.

What runs code that nobody has looked at may loop for ever, fill the memory or crash. The process that was asked starts
another one and watches it. It is no sandbox: the code may do whatever the person may who runs it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

from purerl.hosts import processes
from purerl.hosts.worker import end_with
from purerl.runs.describing import interrupts

INTERVAL = 0.05
"""Seconds between two looks at a process."""
GRACE = 1.0
"""Seconds that a process is given to leave by itself, with its directory in order, and then is killed."""


def run(args: Sequence[str], what: str, seconds: float, gigabytes: float) -> int:
    """Has another process carry out ``purerl ARGS``, and returns its exit code once it has ended.

    - ``what``: whom a line names if the process comes to no end of its own.
    - ``seconds``: of wall time that it may take (0: any), or else the code is `cli.EXIT_TIME`.
    - ``gigabytes``: of memory that it may hold (0: any), or else the code is `cli.EXIT_OUT_OF_MEMORY`. What it starts
      itself is not counted.

    One that crashes, or leaves without a word, gives `cli.EXIT_OWN_CODE`. It ends with this process, also if this is
    killed.
    """
    from purerl.cli import EXIT_OUT_OF_MEMORY, EXIT_OWN_CODE, EXIT_TIME

    life, ours = socket.socketpair()
    word, theirs = os.pipe()
    os.set_blocking(word, False)
    with life, ours, open(word, "rb", buffering=0) as words:
        fds = [life.fileno(), theirs]
        process = processes.interpreter("purerl.cli.limited", *map(str, fds), *args, env=os.environ, fds=fds)
        os.close(theirs)
        with interrupts.cleaning(lambda: _end(process)):
            try:
                broken = _watch(process, seconds, gigabytes)
            finally:
                _end(process)
        said = words.read(1)
    if broken == "seconds":
        return _told(f"{what}: took longer than limit_seconds = {seconds:g}, and was ended", EXIT_TIME)
    if broken:
        return _told(f"{what}: held more than limit_gigabytes = {gigabytes:g}, and was ended", EXIT_OUT_OF_MEMORY)
    if said:
        return said[0]
    code = process.returncode
    ended = f"ended with code {code}" if code >= 0 else f"was killed by signal {processes.signal_name(-code)}"
    return _told(f"{what}: its process {ended} before it was done", EXIT_OWN_CODE)


def _told(line: str, code: int) -> int:
    print(f"purerl: error: {line}", file=sys.stderr)
    return code


def _watch(process: subprocess.Popen, seconds: float, gigabytes: float) -> str:
    """Waits until a process ends (empty) or reaches a limit (its unit). One that takes too much memory dies at once."""
    began = time.monotonic()
    while process.poll() is None:
        if seconds and time.monotonic() - began > seconds:
            return "seconds"
        with contextlib.suppress(psutil.Error):
            if gigabytes and psutil.Process(process.pid).memory_info().rss > gigabytes * 1e9:
                process.kill()
                return "gigabytes"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(INTERVAL)
    return ""


def _end(process: subprocess.Popen) -> None:
    """Ends a process, if it has not ended, and all that it has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    processes.kill_session(process.pid)
    process.wait()


def main() -> None:
    """Carries out the command, as long as the process lives that holds the other end of the first file descriptor, and
    writes its exit code to the second."""
    life, word = map(int, sys.argv[1:3])
    end_with(life)
    os.set_inheritable(word, False)
    from purerl.cli import entry  # after `end_with`: this takes long

    try:
        entry(sys.argv[3:])
    except SystemExit as stop:
        sys.stdout.flush()
        os.write(word, bytes([stop.code if isinstance(stop.code, int) else 0]))
        raise


if __name__ == "__main__":
    main()
