"""SIGINT and SIGTERM: a process that has nothing to save exits at once, a run that has finishes its chunk first.

Python runs its own signal handlers only between two of its instructions, so a long call of compiled code would delay
them. A thread therefore receives the signals, since the interpreter writes each to a pipe at once. The handlers
themselves end waits for environments of the host (`breakable`).
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from purerl import channel

NUMBERS = (signal.SIGINT, signal.SIGTERM)
SAVES = "interrupted: saves what is finished and ends; a second signal ends at once"
"""What the first signal says where it is `deferred`."""
CLOSES = "interrupted: closes the environments and ends; a second signal ends at once"
"""What it says where it is not, within `breakable`."""
GRACE = 4.0
"""Seconds in which environments must be closed that have nothing to save."""
RENEWED_SECONDS = 1.0
"""Seconds between two looks for handlers that an environment has replaced."""

_watching: list[int] = []
"""The file descriptor to which signals are written, while a thread receives them."""
_deferred: list[tuple[list[int], threading.Event, str]] = []
"""The list that takes the first signal, if a run asked for it, and whether that has come: at most one pair."""
_cleaning: list[Callable[[], str | None]] = []
"""The functions that are called before the process exits; each may return a message."""


class Interrupted(BaseException):
    """A signal that ends a wait for environments. Only ``number``, that of the signal, is known."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class Breakable:
    """The context `breakable`. Of all threads only the main one is broken."""

    def __init__(self) -> None:
        self.inside, self.broken, self._due = False, False, 0.0

    def __enter__(self) -> None:
        """Raises `Interrupted` if a signal has come since the run is `deferred`."""
        if threading.get_ident() != threading.main_thread().ident:
            return
        if time.monotonic() >= self._due:
            renew()
            self._due = time.monotonic() + RENEWED_SECONDS
        self.inside = True
        if _deferred and _deferred[-1][0]:
            self.inside = False
            raise Interrupted(_deferred[-1][0][0])

    def __exit__(self, *_: Any) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            self.inside = False


breakable = Breakable()
"""A context in which the first signal raises `Interrupted`, for waits for environments of the host.

What leaves it must close them. A signal that comes in another part of a run that is `deferred` raises on entry. Not to
be nested.
"""


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Ends the process on SIGINT or SIGTERM within the context, unless the signal is `deferred` or breaks a wait.

    The exit code is 128 plus the number of the signal, and there is no traceback. The context does nothing within
    itself, and outside the main thread, which alone receives signals.
    """
    if _watching or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {number: signal.signal(number, _handle) for number in NUMBERS}
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    _watching.append(writer)
    breakable.broken = False
    try:
        yield
    finally:
        _watching.remove(writer)
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)


@contextlib.contextmanager
def deferred(words: str = SAVES) -> Iterator[list[int]]:
    """Puts the first signal within the context into its list and prints ``words``; the second ends the process."""
    received: list[int] = []
    with leaving():
        mine = received, threading.Event(), words
        _deferred.append(mine)
        try:
            yield received
        finally:
            _deferred.remove(mine)


def renew() -> None:
    """Takes signals again that an environment, or a library of its own, has put a handler of its own for.

    Does nothing outside of `leaving`, and outside the main thread.
    """
    if not _watching or threading.get_ident() != threading.main_thread().ident:
        return
    for number in NUMBERS:
        if signal.getsignal(number) is not _handle:
            signal.signal(number, _handle)
    signal.set_wakeup_fd(_watching[-1], warn_on_full_buffer=False)


@contextlib.contextmanager
def cleaning(clean: Callable[[], str | None]) -> Iterator[None]:
    """Has ``clean()`` called before a signal within the context, or `leave`, ends the process.

    The text that it returns is printed. It runs in another thread if a signal ends the process.
    """
    _cleaning.append(clean)
    try:
        yield
    finally:
        _cleaning.remove(clean)


def _handle(number: int, _frame: Any) -> None:
    """Breaks a wait of the main thread, between two of its instructions."""
    if _deferred:
        received = _deferred[-1][0]
        received[:] = received or [number]
    if breakable.inside:
        breakable.inside, breakable.broken = False, True
        raise Interrupted(number)


def _watch(reader: int) -> None:
    """Receives signals until the other end of the pipe is closed."""
    answered = False
    while number := os.read(reader, 1):
        if number[0] not in NUMBERS:
            continue
        code = 128 + number[0]
        if _deferred and not _deferred[-1][1].is_set():
            received, come, words = _deferred[-1]
            answered = True
            come.set()
            received[:] = received or [number[0]]
            _say(words)
        elif not _deferred and not answered and (breakable.inside or breakable.broken):
            answered = True
            _say(CLOSES)
            threading.Thread(target=_leave_late, args=(code,), daemon=True).start()
        else:
            leave(code)
    os.close(reader)


def _leave_late(code: int) -> None:
    """Ends the process if it has not left `leaving` in time."""
    time.sleep(GRACE)
    if _watching:
        leave(code)


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def leave(code: int, words: str = "") -> None:
    """Ends the process at once with an exit code, and prints ``words`` and the messages of `cleaning` to stderr.

    The interpreter's own end would wait for what still runs, or crash in it.
    """
    messages = [words] if words else []
    for clean in _cleaning:
        with contextlib.suppress(Exception):
            messages += filter(None, [clean()])
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
        if messages:
            sys.stderr.write("; ".join(messages) + "\n")
        sys.stderr.flush()
    channel.leave(code)
    os._exit(code)
