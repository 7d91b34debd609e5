"""SIGINT and SIGTERM: a process that has nothing to save exits at once, a run that has finishes its chunk first.

Python runs its own signal handlers only between two of its instructions, so a long call of compiled code would delay
them. A thread therefore receives the signals, since the interpreter writes each to a pipe at once.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from purerl import channel

NUMBERS = (signal.SIGINT, signal.SIGTERM)

_watching: list[int] = []
"""The file descriptor to which signals are written, while a thread receives them."""
_deferred: list[list[int]] = []
"""The list that takes the first signal, if a run asked for it: at most one list."""
_cleaning: list[Callable[[], str | None]] = []
"""The functions that are called before the process exits; each may return a message."""


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Ends the process on SIGINT or SIGTERM within the context, unless the signal is `deferred`.

    The exit code is 128 plus the number of the signal, and there is no traceback. The context does nothing within
    itself, and outside the main thread, which alone receives signals.
    """
    if _watching or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {number: signal.signal(number, lambda *_: None) for number in NUMBERS}
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    _watching.append(writer)
    try:
        yield
    finally:
        _watching.remove(writer)
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)


@contextlib.contextmanager
def deferred() -> Iterator[list[int]]:
    """Puts the first signal within the context into the list that it gives; the second ends the process."""
    received: list[int] = []
    with leaving():
        _deferred.append(received)
        try:
            yield received
        finally:
            _deferred.remove(received)


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


def _watch(reader: int) -> None:
    """Receives signals until the other end of the pipe is closed."""
    while number := os.read(reader, 1):
        if number[0] not in NUMBERS:
            continue
        if _deferred and not _deferred[-1]:
            _deferred[-1].append(number[0])
        else:
            leave(128 + number[0])
    os.close(reader)


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
