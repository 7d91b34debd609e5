"""The progress of a running training: a line that is updated in place on a terminal, plain lines elsewhere."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status

from purerl import processes
from purerl.errors import printable
from purerl.formulas import aggregates

WIDE = 100
"""The columns of a terminal from which on there is room for a long bar."""
WAIT = 10.0
"""Seconds between two lines while a program compiles."""
SOON = 2.0
"""Seconds after which the first line is due, before a tenth is done."""


def console() -> Console:
    """Makes the console that a run writes to: the standard error. Of several processes only the first one writes."""
    return Console(stderr=True, quiet=not processes.is_first())


def frames_per_second(rate: float) -> str:
    """Returns a rate as text: ``1234567.`` becomes ``1.23M frames/s``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter} frames/s"
    return f"{rate:.3g} frames/s"


def duration(seconds: float) -> str:
    """Returns a time as text, in hours, minutes or seconds: ``5400`` becomes ``1.5 h``."""
    size, unit = next(scale for scale in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= scale[0] or scale[0] == 1)
    return f"{seconds / size:.3g} {unit}"


def in_words(returns: np.ndarray) -> str:
    """Returns the returns ``[P]`` of agents as text; empty if no episode ended.

    It has the interquartile mean (IQM) of the agents of which an episode ended, with its 95 % bootstrap interval; or
    the return of each if they are fewer than `aggregates.LEAST`.
    """
    known = returns[np.isfinite(returns)]
    if known.size < aggregates.LEAST:
        return ", ".join(f"{value:.1f}" for value in known)
    value, low, high = aggregates.bands(known[:, None])[:, 0]
    return f"IQM {value:.1f} [{low:.1f}, {high:.1f}]"


Report = Callable[[int, np.ndarray, int], None]
"""``report(env_steps, returns, alive)``: the environment steps so far over all members; the latest mean return of
each current member ``[P]`` (nan: no episode ended); and how many of these are alive."""


@contextlib.contextmanager
def waiting(console: Console, stage: str, usual: float | None = None) -> Iterator[Callable[[str], None]]:
    """Shows the stage of a program and the seconds gone while nothing else is shown.

    On a terminal a line is updated in place; elsewhere a line is written every `WAIT` seconds.

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
        while not over.wait(1.0 if console.is_terminal else WAIT):
            status.update(line()) if isinstance(status, Status) else say(console, line())

    ticking = threading.Thread(target=tick, daemon=True)
    with status:
        ticking.start()
        try:
            yield stages.append
        finally:
            over.set()
            ticking.join()


@contextlib.contextmanager
def show(console: Console, env_steps: int, clock: Callable[[], float] = time.perf_counter) -> Iterator[Report]:
    """Shows progress towards a number of environment steps.

    Timing starts on entry, so enter it after compiling.

    Args:
        console: Where to write.
        env_steps: The number of environment steps to come, over all members.
        clock: A function that returns the seconds that count.

    Yields:
        The `Report` to call with the progress.
    """
    display = _bar if console.is_terminal else _lines
    with display(console, env_steps, clock) as report:
        yield report


@contextlib.contextmanager
def _bar(console: Console, env_steps: int, clock: Callable[[], float]) -> Iterator[Report]:
    """Shows progress as a line that is updated in place."""
    columns = (
        BarColumn(bar_width=20 if console.width >= WIDE else 3),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[speed]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        TextColumn("return {task.fields[current]}{task.fields[living]}"),
    )
    with Progress(*columns, console=console) as bar:
        task, start = bar.add_task("", total=env_steps, speed="starting", current="-", living=""), clock()

        def report(done: int, returns: np.ndarray, alive: int) -> None:
            speed, current = frames_per_second(done / max(clock() - start, 1e-9)), in_words(returns)
            shown: dict[str, Any] = {"current": current} if current else {}
            bar.update(task, completed=done, speed=speed, living=_living(returns.size, alive), **shown)

        yield report


@contextlib.contextmanager
def _lines(console: Console, env_steps: int, clock: Callable[[], float]) -> Iterator[Report]:
    """Shows progress as a line when it starts, one soon after, and one for each completed tenth."""
    start, tenth, early = clock(), 0, True
    say(console, "started; the first progress line follows soon, then one per tenth of the training")

    def report(done: int, returns: np.ndarray, alive: int) -> None:
        nonlocal tenth, early
        seconds = max(clock() - start, 1e-9)
        if done * 10 // env_steps > tenth or (early and seconds >= SOON):
            tenth, early = done * 10 // env_steps, False
            console.print(
                f"{100 * done // env_steps:3d} %  {frames_per_second(done / seconds)}  "
                f"ETA {seconds * (env_steps / done - 1):.0f} s  return {in_words(returns) or '-'}"
                f"{_living(returns.size, alive)}",
                highlight=False,
                markup=False,
            )

    yield report


def _living(size: int, alive: int) -> str:
    """Returns how many of several agents are alive, as the end of a line; empty if all are."""
    return f"  {alive:,}/{size:,} alive" if alive < size else ""


def say(console: Console, text: str) -> None:
    """Prints a line of plain text, neither highlighted nor wrapped."""
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)
