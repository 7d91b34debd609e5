"""Commands that another process runs, within limits of time and memory: ``python -m purerl.cli.limited FD FD ARGS``.

Code that has not been reviewed may loop for ever, fill the memory or crash. Therefore the process of the command starts
another one and watches it. This is no sandbox: the code has all the rights of the user who runs it.
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

from purerl import interrupts
from purerl.hosts import processes
from purerl.hosts.worker import end_with

INTERVAL = 0.05
"""Seconds between two checks of a process."""
GRACE = 1.0
"""Seconds that a process has to end by itself and clean up, before it is killed."""


def run(args: Sequence[str], what: str, seconds: float, gigabytes: float, crashed: int | None = None) -> int:
    """Runs ``purerl ARGS`` in another process, waits until that has ended, and returns its exit code.

    The process ends with this one, also if this one is killed.

    Args:
        args: The command and its arguments.
        what: The name that error lines begin with.
        seconds: The most wall time that it may take (0: no limit).
        gigabytes: The most memory that it may hold (0: no limit). The processes that it starts are not counted.
        crashed: The exit code if it crashes or ends without reporting one (None: `cli.EXIT_OWN_CODE`).

    Returns:
        The command's exit code; `cli.EXIT_TIME` or `cli.EXIT_OUT_OF_MEMORY` if it exceeded a limit; or ``crashed``
        if it crashed or ended without reporting an exit code.
    """
    from purerl.cli import EXIT_OUT_OF_MEMORY, EXIT_OWN_CODE, EXIT_TIME

    life, parent_end = socket.socketpair()
    word, child_end = os.pipe()
    os.set_blocking(word, False)
    with life, parent_end, open(word, "rb", buffering=0) as words:
        fds = [life.fileno(), child_end]
        process = processes.interpreter("purerl.cli.limited", *map(str, fds), *args, env=os.environ, fds=fds)
        os.close(child_end)
        with interrupts.cleaning(lambda: _end(process)):
            try:
                broken = _watch(process, seconds, gigabytes)
            finally:
                _end(process)
        reply = words.read(1)
    if broken == "seconds":
        return _error(f"{what}: took longer than limit_seconds = {seconds:g}, and was ended", EXIT_TIME)
    if broken:
        return _error(f"{what}: held more than limit_gigabytes = {gigabytes:g}, and was ended", EXIT_OUT_OF_MEMORY)
    if reply:
        return reply[0]
    code = process.returncode
    ended = f"ended with code {code}" if code >= 0 else f"was killed by signal {processes.signal_name(-code)}"
    return _error(f"{what}: its process {ended} before it was done", EXIT_OWN_CODE if crashed is None else crashed)


def _error(line: str, code: int) -> int:
    print(f"purerl: error: {line}", file=sys.stderr)
    return code


def _watch(process: subprocess.Popen, seconds: float, gigabytes: float) -> str:
    """Waits until a process ends (empty) or reaches a limit (its unit); kills it at once if the limit is of memory."""
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
    """Ends a process if it is still running, and all processes that it has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    processes.kill_session(process.pid)
    process.wait()


def main() -> None:
    """Runs the command in this process and reports its exit code.

    The first argument is a file descriptor: the process ends as soon as the holder of its other end does. The second is
    the file descriptor that the exit code is written to.
    """
    life, word = map(int, sys.argv[1:3])
    end_with(life)
    os.set_inheritable(word, False)
    from purerl.cli import entry  # a slow import, so after `end_with`

    try:
        entry(sys.argv[3:])
    except SystemExit as stop:
        sys.stdout.flush()
        os.write(word, bytes([stop.code if isinstance(stop.code, int) else 0]))
        raise


if __name__ == "__main__":
    main()
