"""Worker processes as their parent handles them: starting one, waiting for its answers, ending it."""

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO
from typing import Any, NamedTuple

from purerl.errors import ConfigError
from purerl.hosts import container
from purerl.hosts.messages import CLOSING, DONE, ENDED, HUNG, INTERRUPT, INVALID, RAISED, READY, REFUSED, TOLD, Share
from purerl.names import folder

GRACE = 1.0
"""Seconds that a worker is given to end by itself, or to report where it is."""
CLOSE_SECONDS = 10.0
"""Seconds that a worker may take to close its environments."""
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables of workers unless they are set: workers share the cores as processes, not as threads."""


class Fault(Exception):
    """A failure after which a worker is of no use.

    The text says what the worker did; ``kind`` is the first byte of its answer, if there was one.
    """

    def __init__(self, text: str, kind: bytes = b""):
        super().__init__(text)
        self.kind = kind


@contextlib.contextmanager
def starting(close: Callable[[], Any], name: str, does: str) -> Iterator[None]:
    """Starts workers within the context, and calls ``close`` if that fails.

    Raises:
        ConfigError: For a `Fault` of a worker, which ``does`` something with the environment ``name``.
    """
    try:
        yield
    except Fault as fault:
        close()
        if fault.kind == REFUSED:
            raise ConfigError(str(fault)) from None
        raise ConfigError(f"env = {name!r}: the worker that {does} it {fault}") from None
    except BaseException:
        close()
        raise


class Process(NamedTuple):
    """A worker.

    It is the process, the file that takes its commands, the socket whose end ends it, and the files that its answers
    come from, group by group, each with a poll.
    """

    popen: subprocess.Popen
    inbox: FileIO
    life: socket.socket
    replies: tuple[FileIO, ...]
    polls: tuple[Any, ...]


def cores() -> int:
    """Counts the cores that this process may use; all cores where the system does not say (macOS).

    A container's share of the time of CPUs counts as so many cores, rounded up.
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return math.ceil(min(there, container.cpus()))


def interpreter(module: str, *words: str, env: Mapping[str, str], fds: Sequence[int]) -> subprocess.Popen:
    """Starts a module as a program with arguments ``words``, the environment ``env`` and file descriptors ``fds``.

    It is a new interpreter with this one's path of modules, in a session of its own, so that a terminal's Ctrl-C does
    not reach it. Its standard input is empty.
    """
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # "" stands for the working directory
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *words],
        stdin=subprocess.DEVNULL,
        env={**env, "PYTHONPATH": path},
        cwd=folder(),
        pass_fds=fds,
        start_new_session=True,
    )


def start(share: dict[str, Any], memory: int, num_groups: int) -> Process:
    """Starts a worker on its ``share``, which lacks the file descriptors of `Share`, and does not wait for it."""
    inbox, commands = os.pipe()
    life, parent_end = socket.socketpair()
    pipes = [os.pipe() for _ in range(num_groups)]
    inherited = [inbox, life.fileno(), *(write for _, write in pipes)]
    description = Share(**share, memory=memory, inbox=inbox, life=life.fileno(), replies=inherited[2:])
    environment = ENVIRONMENT | os.environ | {"JAX_PLATFORMS": "cpu"}
    try:
        popen = interpreter(
            "purerl.hosts.worker", json.dumps(description._asdict()), env=environment, fds=[memory, *inherited]
        )
    finally:
        life.close()
        for fd in (inbox, *inherited[2:]):
            os.close(fd)
    replies = tuple(FileIO(read, "r") for read, _ in pipes)
    polls = tuple(select.poll() for _ in replies)
    for poll, reply in zip(polls, replies, strict=True):
        poll.register(reply, select.POLLIN)
    return Process(popen, FileIO(commands, "w"), parent_end, replies, polls)


def send(process: Process, order: bytes) -> None:
    """Sends a command. If the worker is gone, waiting for its answer reveals it."""
    with contextlib.suppress(BrokenPipeError):
        process.inbox.write(order)


def answer(process: Process, group: int, limit: float, since: Callable[[], float]) -> tuple[bytes, Any]:
    """Waits for an answer of a worker; returns its first byte, and the content of the line after it.

    Args:
        process: The worker.
        group: The number of the group that the answer is for.
        limit: Seconds after which the worker hangs.
        since: The time from which they count (`time.monotonic`).

    Raises:
        Fault: If there is no answer in time, or if the worker has ended or is about to.
    """
    while True:
        left = since() + limit - time.monotonic()
        if process.polls[group].poll(1000 * max(left, 0.0)):
            break
        if left <= 0:
            raise _hang(process, limit)
    kind = process.replies[group].read(1)
    if kind in (DONE, ENDED):
        return kind, None
    if not kind:
        raise _death(process)
    text = json.loads(process.replies[group].readline())
    if kind in (READY, TOLD):
        return kind, text
    raise _fault(kind, text)


def kill(process: Process) -> None:
    """Ends a worker, and the processes that it has started, at once."""
    if process.life.fileno() < 0:
        return
    kill_session(process.popen.pid)
    process.popen.wait()
    process.life.close()
    for file in (process.inbox, *process.replies):
        file.close()


def end(workers: Sequence[Process], warn: Callable[[str], None]) -> None:
    """Lets workers close their environments, and kills those that have not ended.

    A worker has `GRACE` seconds to begin with that, and `CLOSE_SECONDS` to end. ``warn(line)`` tells of those that do
    not.
    """
    begun, closing = time.monotonic(), set()
    for process in workers:
        process.inbox.close()
    for number, process in enumerate(workers):
        while process.popen.poll() is None and process.life.fileno() >= 0:
            if CLOSING in _unread(process):
                closing.add(number)
            if time.monotonic() - begun > (CLOSE_SECONDS if number in closing else GRACE):
                if number in closing:
                    warn(f"worker {number} has not closed its environments within {CLOSE_SECONDS:g} s; it is ended")
                break
            time.sleep(0.002)
        kill(process)


def _unread(process: Process) -> bytes:
    """Returns what a worker wrote to its first pipe and nobody has read."""
    reply = process.replies[0]
    return os.read(reply.fileno(), 2**16) if process.polls[0].poll(0) else b""


def kill_session(pid: int) -> None:
    """Kills a process of `interpreter`, and all processes that it has started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _death(process: Process) -> Fault:
    """Returns the fault of a worker that has ended or is ending: what it wrote, or how its process ended."""
    kill_session(process.popen.pid)
    code = process.popen.wait()
    words = _last_words(process)
    if words:
        return _fault(*words)
    return Fault(f"exited with code {code}" if code >= 0 else f"was killed by signal {signal_name(-code)}")


def _hang(process: Process, limit: float) -> Fault:
    """Asks a worker where it hangs, which it cannot report from within compiled code."""
    os.kill(process.popen.pid, INTERRUPT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.popen.wait(GRACE)
    kind, place = _last_words(process) or (b"", "")
    where = f" ({place})" if kind == HUNG and place else ""
    return Fault(f"hangs: no answer within {limit:g} s{where}; --worker-timeout gives it more", kind)


def _last_words(process: Process) -> tuple[bytes, str] | None:
    """Returns the line that a worker which has ended wrote to any of its pipes, and its first byte."""
    for poll, reply in zip(process.polls, process.replies, strict=True):
        words = os.read(reply.fileno(), 2**16).lstrip(DONE + ENDED + CLOSING) if poll.poll(0) else b""
        if words:
            return words[:1], json.loads(words[1:])
    return None


def _fault(kind: bytes, text: str) -> Fault:
    return Fault({RAISED: "raised ", INVALID: "returned invalid data: "}.get(kind, "") + text, kind)


def signal_name(number: int) -> str:
    """Returns the number of a signal, with its name if it has one."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return str(number)
