"""Closing the environments of a process that a signal ends."""

import ctypes
import threading
import time

from purerl.hosts import copies

SECONDS = 4.0
"""Seconds that the main thread is given to close what it has opened."""
LAST_SECONDS = 1.0
"""Seconds that closing the rest from another thread may take."""


class Left(BaseException):
    """An interruption, raised in the main thread wherever it is, so that it closes what it has opened."""


def unwound() -> None:
    """Has the main thread close all copies, or closes them itself if that takes too long. Is called in another thread.

    Does nothing if there are none.
    """
    main = threading.main_thread()
    if not copies.alive() or threading.current_thread() is main:
        copies.close_all()
        return
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident or 0), ctypes.py_object(Left))
    until = time.monotonic() + SECONDS
    while copies.alive() and time.monotonic() < until:
        time.sleep(0.01)
    if copies.alive():
        rest = threading.Thread(target=copies.close_all, daemon=True)
        rest.start()
        rest.join(LAST_SECONDS)
