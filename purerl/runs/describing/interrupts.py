"""SIGINT and SIGTERM: a process that has nothing to save leaves at once, a run that has finishes its chunk first.

Python runs its own signal handlers between two of its instructions only, so a long call of compiled code would delay
them. Signals are therefore received by a thread, which the interpreter tells of them at once.
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
"""Where signals are written, while a thread receives them."""
_deferred: list[list[int]] = []
"""Where the first signal is put, if a run asked for it: at most one list."""
_cleaning: list[Callable[[], str | None]] = []
"""What is called before the process leaves; it may have a word to say."""


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Within it SIGINT and SIGTERM end the process with the exit code 128 + number, without a traceback, unless they
    are `deferred`. Does nothing within itself, or outside the main thread, which alone receives signals."""
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
    """Within it the first signal lands in the list that it gives; the second ends the process, as `leaving` does."""
    received: list[int] = []
    with leaving():
        _deferred.append(received)
        try:
            yield received
        finally:
            _deferred.remove(received)


@contextlib.contextmanager
def cleaning(clean: Callable[[], str | None]) -> Iterator[None]:
    """Within it ``clean()`` is called before a signal or `leave` ends the process, and what it returns is told. It runs
    in another thread."""
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
    """Ends the process at once, with an exit code and ``words``, if there are any; the interpreter's own end would wait
    for what still runs, or crash in it."""
    told = [words] if words else []
    for clean in _cleaning:
        with contextlib.suppress(Exception):
            told += filter(None, [clean()])
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
        if told:
            sys.stderr.write("; ".join(told) + "\n")
        sys.stderr.flush()
    channel.leave(code)
    os._exit(code)
