"""The copies of environments in this process: each is made for a batch that steps it, and closed once.

What has to be known of an environment beforehand, such as its spaces, is read off a copy that the next batch then
takes. Needs neither JAX nor numpy.
"""

import contextlib
import ctypes
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from purerl.errors import RAISED, ConfigError, one_line, printable

CLOSE_SECONDS = 4.0
"""Seconds that the main thread is given to close what it has opened."""
LAST_SECONDS = 1.0
"""Seconds that closing the rest from another thread may take."""


class Left(BaseException):
    """An interruption, raised in the main thread wherever it is, so that it closes what it has opened."""


class _Copy(NamedTuple):
    """A copy: the arguments that it was made with, and the thread that made it."""

    env: Any
    how: tuple[Any, ...]
    thread: int


class Plan(NamedTuple):
    """What the copy is for that is looked at: the number of environments of its batch, and whether it is drawn.

    ``workers``: how many workers step them; 0: this process does. ``apart``: a thread of its own does.
    """

    num_envs: int = 1
    pictures: bool = False
    workers: int = 0
    apart: bool = False


_plan = [Plan()]
_sessions: list[int] = []
"""The thread of each context that keeps copies, the outermost one first."""
_memories: list[dict[Any, Any]] = []
_told: set[str] = set()
_all: "weakref.WeakSet[Copies]" = weakref.WeakSet()


class Copies:
    """The copies of the environment ``name``, each made by ``make(*how)``. ``whole``: each is a batch by itself.

    A copy is in a batch, or spare: looked at, or left by a batch within a `session`. Only the thread that made a copy
    takes or closes it, but for the end of the process. ``apart`` is the thread that has looked and waits for a batch
    (`purerl.hosts.local.Apart`); None: there is none.
    """

    def __init__(self, name: str, make: Callable[..., Any], *, whole: bool = False):
        self.whole = whole
        self.apart: Any = None
        self._name, self._make = name, make
        self._spare: list[_Copy] = []
        self._live: list[_Copy] = []
        self._known: dict[int, weakref.ref[Any]] = {}
        _all.add(self)
        weakref.finalize(self, _close_lists, name, self._spare, self._live)

    def look(self, *how: Any, made: Any = None) -> Any:
        """Returns the first copy to look at, which is ``made`` if it has been made already; it is spare."""
        env = self._make(*how) if made is None else made
        self._new(env)
        self._spare.append(_Copy(env, how, threading.get_ident()))
        return env

    def taken(self, count: int, *how: Any) -> list[Any]:
        """Returns ``count`` copies for a batch, which `release`s them: spare ones first, then new ones.

        Spare copies that were made with other arguments are closed.

        Raises:
            ConfigError: If a copy cannot be made, or is one that was made before.
        """
        here = threading.get_ident()
        mine = [copy for copy in self._spare if copy.thread == here]
        chosen = [copy for copy in mine if copy.how == how][:count]
        self._close([copy for copy in mine if copy.how != how])
        for copy in chosen:
            self._spare.remove(copy)
        self._live += chosen
        try:
            while len(chosen) < count:
                env = self._another(how)
                self._new(env)
                chosen.append(_Copy(env, how, here))
                self._live.append(chosen[-1])
        except BaseException:
            self.release([copy.env for copy in chosen])
            raise
        return [copy.env for copy in chosen]

    def rows(self, build: Callable[[list[Any]], Any], count: int, *how: Any) -> Any:
        """Returns the `Rows` that ``build`` makes of ``count`` copies; closing them releases the copies."""
        envs = self.taken(count, *how)
        try:
            return build(envs)._replace(close=functools.partial(self.release, envs))
        except BaseException:
            self.release(envs)
            raise

    def release(self, envs: list[Any]) -> None:
        """Closes copies that a batch had taken, and the spare ones; in the thread of a `session` they become spare."""
        kept = bool(_sessions) and _sessions[0] == threading.get_ident()
        for copy in [copy for copy in self._live if any(copy.env is env for env in envs)]:
            self._live.remove(copy)
            self._spare.append(copy)
        if not kept:
            self.close_spare()

    def close_spare(self) -> None:
        """Closes the spare copies that this thread made."""
        here = threading.get_ident()
        self._close([copy for copy in self._spare if copy.thread == here])

    def close_all(self) -> None:
        """Closes all copies, whatever thread made them."""
        _close_lists(self._name, self._spare, self._live)

    def _close(self, copies: list[_Copy]) -> None:
        for copy in copies:
            self._spare.remove(copy)
            _close(self._name, copy.env)

    def _another(self, how: tuple[Any, ...]) -> Any:
        try:
            return self._make(*how)
        except ConfigError as error:
            others = len(self._live) + len(self._spare)
            if not others or self.whole:
                raise
            raise ConfigError(
                f"{error}; {others} of it {'exists' if others == 1 else 'exist'} in this process already: where that is"
                " the reason, give each copy a worker of its own (--workers), or have one copy (--num-envs 1)"
            ) from error.__cause__

    def _new(self, env: Any) -> None:
        """Raises `ConfigError` if ``env`` is an instance that was made before."""
        core = _core(env)
        known = self._known.get(id(core))
        if (known and known() is core) or any(_core(copy.env) is core for copy in (*self._spare, *self._live)):
            raise ConfigError(
                f"env = {self._name!r}: returns the same instance again; each copy must be an instance of its own, so"
                " make a new one at each call"
            )
        with contextlib.suppress(TypeError):  # not every class can be referred to weakly
            self._known[id(core)] = weakref.ref(core)


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Keeps copies within the context for the batches that come later, and closes them at its end.

    Environments that are looked up within it are `remembered`.
    """
    try:
        with keeping(), remembering():
            yield
    finally:
        if not _sessions:
            while at_end:
                at_end.pop()()
            for copies in list(_all):
                copies.close_spare()


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Keeps copies that batches release within the context for later batches."""
    _sessions.append(threading.get_ident())
    try:
        yield
    finally:
        _sessions.pop()


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Looks at each environment once within the context, however often its name is looked up."""
    _memories.append({})
    try:
        yield
    finally:
        _memories.pop()


def remembered() -> dict[Any, Any]:
    """Returns the memory of the outermost `remembering`; without one, an empty dictionary."""
    return _memories[0] if _memories else {}


@contextlib.contextmanager
def planned(num_envs: int = 1, *, pictures: bool = False, workers: int = 0, apart: bool = False) -> Iterator[None]:
    """Says what copies are for that are looked at within the context."""
    _plan.append(Plan(num_envs, pictures, workers, apart))
    try:
        yield
    finally:
        _plan.pop()


def plan() -> Plan:
    """Returns what the copy is for that is looked at next."""
    return _plan[-1]


at_end: list[Callable[[], None]] = []
"""What is called at the end of the outermost `session`."""
workers: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The pools of workers that this process has open, which have copies of their own."""


def alive() -> bool:
    """Returns whether any copy of this process or of its workers has not been closed."""
    return bool(workers) or any(copies._spare or copies._live for copies in list(_all))


def close_all() -> None:
    """Closes all copies in this process, whatever thread made them."""
    for copies in list(_all):
        copies.close_all()


def unwound() -> None:
    """Has the main thread close all copies, or closes them itself if that takes too long. Is called in another thread.

    Does nothing if there are none.
    """
    main = threading.main_thread()
    if not alive() or threading.current_thread() is main:
        close_all()
        return
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident or 0), ctypes.py_object(Left))
    until = time.monotonic() + CLOSE_SECONDS
    while alive() and time.monotonic() < until:
        time.sleep(0.01)
    if alive():
        rest = threading.Thread(target=close_all, daemon=True)
        rest.start()
        rest.join(LAST_SECONDS)


def _core(env: Any) -> Any:
    """Returns the environment within the wrappers of ``env``."""
    return getattr(env, "unwrapped", env)


def _close_lists(name: str, *lists: list[_Copy]) -> None:
    for each in lists:
        while each:
            _close(name, each.pop().env)


def _close(name: str, env: Any) -> None:
    """Closes an environment. If that fails, it is told, once for each name."""
    try:
        env.close()
    except RAISED as error:
        if name not in _told:
            _told.add(name)
            line = f"env = {name!r}: close raised {one_line(error)}; what it holds may not be freed"
            print(printable(line), file=sys.stderr, flush=True)
