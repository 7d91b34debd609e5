"""The progress of a training: a line that is updated in place in a terminal or a notebook, plain lines elsewhere."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status

from purerl import processes
from purerl.display import words
from purerl.errors import printable
from purerl.formulas import aggregates

WIDE = 100
"""The columns of a terminal from which on there is room for a long bar."""
WAIT = 10.0
"""Seconds until the first line while a program compiles."""
SOON = 2.0
"""Seconds after which the first line is due, before a tenth is done."""
QUIET = 8.0
"""Seconds without news of a training after which there is a line about what goes on."""
LONGEST = 600.0
"""The most seconds between two such lines."""


def console() -> Console:
    """Makes the console that a run writes to: the standard error. Of several processes only the first one writes."""
    return Console(stderr=True, quiet=not processes.is_first())


def frames_per_second(rate: float, unit: str = "frames") -> str:
    """Returns a rate as text: ``1234567.`` becomes ``1.23M frames/s``; ``unit`` is what is counted."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter} {unit}/s"
    return f"{rate:.3g} {unit}/s"


def duration(seconds: float) -> str:
    """Returns a time as text, in days, hours, minutes or seconds: ``5400`` becomes ``1.5 h``."""
    scales = (2 * 86400, 86400, "days"), (3600, 3600, "h"), (60, 60, "min"), (0, 1, "s")
    _, size, unit = next(scale for scale in scales if seconds >= scale[0])
    return f"{seconds / size:.3g} {unit}"


def in_words(returns: np.ndarray) -> str:
    """Returns the returns ``[P]`` of agents as text; empty if no episode ended.

    It has the interquartile mean (IQM) of the agents of which an episode ended, with its 95 % bootstrap interval; or
    the return of each if they are fewer than `aggregates.LEAST`.
    """
    known = returns[np.isfinite(returns)]
    digits = words.digits(*known)
    if known.size < aggregates.LEAST:
        return ", ".join(f"{value:.{digits}f}" for value in known)
    value, low, high = aggregates.bands(known[:, None])[:, 0]
    return f"IQM {value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


Report = Callable[[int, np.ndarray, int], None]
"""``report(env_steps, returns, alive)``: the environment steps so far over all members; the latest mean return of
each current member ``[P]`` (nan: no episode ended); and how many of these are alive."""


Activity = Callable[[], tuple[int, str]]
"""``activity()``: the environment steps since the last report, over all members, and in words what goes on; empty: it
is not known. It is called in another thread."""


@contextlib.contextmanager
def waiting(console: Console, stage: str, usual: float | None = None) -> Iterator[Callable[[str], None]]:
    """Shows the stage of a program and the seconds gone while nothing else is shown.

    On a terminal a line is updated in place; elsewhere a line is written after `WAIT` seconds, and further ones after
    pauses that double, up to `LONGEST`.

    Args:
        console: Where to write.
        stage: The name of the first stage.
        usual: The seconds that it took the last time, which are shown as well (None: unknown).

    Yields:
        A function to call with the name of each further stage.
    """
    start, over, stages = time.perf_counter(), threading.Event(), [stage]
    before = f", {usual:.0f} s the last time" if usual else ""
    line = lambda: f"{stages[-1]} ... {time.perf_counter() - start:.0f} s{before}"
    status = console.status(line()) if console.is_terminal else contextlib.nullcontext()

    def tick() -> None:
        pause = 1.0 if console.is_terminal else WAIT
        while not over.wait(pause):
            if isinstance(status, Status):
                status.update(line())
            else:
                pause = min(2 * pause, LONGEST)
                say(console, line())

    ticking = threading.Thread(target=tick, daemon=True)
    with status:
        ticking.start()
        try:
            yield stages.append
        finally:
            over.set()
            ticking.join()


@contextlib.contextmanager
def show(
    console: Console,
    env_steps: int,
    clock: Callable[[], float] = time.perf_counter,
    activity: Activity = lambda: (0, ""),
    what: str = "return",
    unit: str = "frames",
) -> Iterator[Report]:
    """Shows progress towards a number of environment steps, or of what else is counted.

    Timing starts on entry, so enter it after compiling. What goes on is told while reports do not come.

    Args:
        console: Where to write.
        env_steps: The number of environment steps to come, over all members.
        clock: A function that returns the seconds that count.
        activity: A function that returns what goes on between two reports.
        what: The name of what the reports have in place of returns.
        unit: The name of what is counted.

    Yields:
        The `Report` to call with the progress.
    """
    elsewhere = _cell if console.is_jupyter else _lines
    with (_bar if console.is_terminal else elsewhere)(console, env_steps, clock, activity, what, unit) as report:
        yield report


@contextlib.contextmanager
def _ticking(tick: Callable[[], None], seconds: float = 1.0) -> Iterator[None]:
    """Calls ``tick()`` every ``seconds`` in a thread within the context."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            tick()

    ticking = threading.Thread(target=work, name="progress", daemon=True)
    ticking.start()
    try:
        yield
    finally:
        over.set()
        ticking.join()


@contextlib.contextmanager
def _bar(
    console: Console, env_steps: int, clock: Callable[[], float], activity: Activity, what: str, unit: str
) -> Iterator[Report]:
    """Shows progress as a line that is updated in place."""
    columns = (
        BarColumn(bar_width=20 if console.width >= WIDE else 3),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[speed]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        TextColumn(what + " {task.fields[current]}{task.fields[living]}{task.fields[doing]}"),
    )
    with Progress(*columns, console=console) as bar:
        task, start = bar.add_task("", total=env_steps, speed="starting", current="-", living="", doing=""), clock()
        so_far, last = 0, time.perf_counter()
        speed = lambda done: frames_per_second(done / max(clock() - start, 1e-9), unit)

        def report(done: int, returns: np.ndarray, alive: int) -> None:
            nonlocal so_far, last
            so_far, last, current = done, time.perf_counter(), in_words(returns)
            shown: dict[str, Any] = {"current": current} if current else {}
            bar.update(task, completed=done, speed=speed(done), living=_living(returns.size, alive), doing="", **shown)

        def tick() -> None:
            if time.perf_counter() - last >= SOON:
                more, words = activity()
                words = words if console.width >= WIDE else words.partition(",")[0]
                shown: dict[str, Any] = {"speed": speed(so_far + more)} if so_far + more else {}
                bar.update(task, completed=so_far + more, doing=words and f"  {words}", **shown)

        with _ticking(tick):
            yield report


@contextlib.contextmanager
def _lines(
    console: Console, env_steps: int, clock: Callable[[], float], activity: Activity, what: str, unit: str
) -> Iterator[Report]:
    """Shows progress as a line when it starts, one soon after, and one for each completed tenth.

    If there is no report for `QUIET` seconds there is one about what goes on. Further ones come when something else
    goes on, and after pauses that double, up to `LONGEST`.
    """
    start, tenth, early, so_far, latest, living = clock(), 0, True, 0, np.empty(0), ""
    news = written = time.perf_counter()
    pause, told = QUIET, ""
    say(console, "started; the first progress line follows soon, then one per tenth of the training")

    def line(done: int, more: str = "") -> None:
        nonlocal written
        written = time.perf_counter()
        say(console, _line(done, env_steps, clock() - start, latest, what, unit) + living + more)

    def report(done: int, returns: np.ndarray, alive: int) -> None:
        nonlocal tenth, early, so_far, latest, living, news
        so_far, latest, living = done, returns, _living(returns.size, alive)
        news = time.perf_counter()
        if done * 10 // env_steps > tenth or (early and clock() - start >= SOON):
            tenth, early = done * 10 // env_steps, False
            line(done)

    def tick() -> None:
        nonlocal pause, told
        now = time.perf_counter()
        if now - news < QUIET:
            return
        more, words = activity()
        kind = words.partition(" ")[0]
        if now - written >= (pause if kind == told else QUIET):
            pause, told = min(2 * pause, LONGEST) if kind == told else 2 * QUIET, kind
            line(so_far + more, words and f"  {words}")

    with _ticking(tick, min(1.0, QUIET)):
        yield report


def _line(done: int, env_steps: int, seconds: float, returns: np.ndarray, what: str, unit: str) -> str:
    """Returns as a line how far a training is, after so many seconds, and the latest returns of its agents.

    They are called ``what``, and what is counted ``unit``.
    """
    seconds = max(seconds, 1e-9)
    left = duration(round(seconds * (env_steps / done - 1))) if done else "-"
    speed = frames_per_second(done / seconds, unit)
    return f"{100 * done // env_steps:3d} %  {speed}  ETA {left}  {what} {in_words(returns) or '-'}"


@contextlib.contextmanager
def _cell(
    console: Console, env_steps: int, clock: Callable[[], float], activity: Activity, what: str, unit: str
) -> Iterator[Report]:
    """Shows progress as a line of a notebook's cell, which is updated in place."""
    from IPython.display import display

    start, width = clock(), 20
    text = lambda words: {"text/plain": words}
    handle = display(text(f"{'░' * width}  starting"), raw=True, display_id=True)

    def report(done: int, returns: np.ndarray, alive: int) -> None:
        full = width * done // env_steps
        bar = "█" * full + "░" * (width - full)
        line = _line(done, env_steps, clock() - start, returns, what, unit) + _living(returns.size, alive)
        handle.update(text(f"{bar} {line}"), raw=True)

    yield report


def _living(size: int, alive: int) -> str:
    """Returns how many of several agents are alive, as the end of a line; empty if all are."""
    return f"  {alive:,}/{size:,} alive" if alive < size else ""


def say(console: Console, text: str) -> None:
    """Prints a line of plain text, neither highlighted nor wrapped."""
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def picturing(directory: Path) -> Iterator[None]:
    """Prints a line on the standard error for an error within the context, which draws results of a run, and goes on.

    The results are saved in ``directory`` before, so that the run loses nothing but the picture.
    """
    try:
        yield
    except Exception as error:  # of matplotlib, its fonts, or the disk
        line = f"{directory}: a picture cannot be drawn: {type(error).__name__}: {error}"
        print(printable(line), file=sys.stderr, flush=True)
