"""Progress of a running training: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


def frames_per_second(rate: float) -> str:
    """A rate as text: ``1234567.`` becomes ``1.23M frames/s``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter} frames/s"
    return f"{rate:.3g} frames/s"


def duration(seconds: float) -> str:
    """A time as text, in hours, minutes or seconds: ``5400`` becomes ``1.5 h``."""
    size, unit = next(scale for scale in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= scale[0] or scale[0] == 1)
    return f"{seconds / size:.3g} {unit}"


def mean_return(metrics: dict[str, np.ndarray]) -> float:
    """Mean return of all episodes that ended in metrics ``[iterations, S]``; nan if none did."""
    episodes = metrics["episodes"].astype(np.float64)
    total = np.sum(np.where(episodes > 0, metrics["episode_return"] * episodes, 0.0))
    return float(total / episodes.sum()) if episodes.any() else float("nan")


Report = Callable[[int, float], None]
"""``report(env_steps, episode_return)``: environment steps so far over all seeds, and the latest mean return (nan if no
episode ended)."""


@contextlib.contextmanager
def show(console: Console, env_steps: int) -> Iterator[Report]:
    """Shows progress towards ``env_steps`` environment steps. Timing starts on entry, so enter it after compiling."""
    display = _bar if console.is_terminal else _lines
    with display(console, env_steps) as report:
        yield report


@contextlib.contextmanager
def _bar(console: Console, env_steps: int) -> Iterator[Report]:
    """Shows progress as a bar that is updated in place."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[speed]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        TextColumn("return {task.fields[current]}"),
    )
    with Progress(*columns, console=console) as bar:
        task, start = bar.add_task("", total=env_steps, speed="", current="-"), time.perf_counter()

        def report(done: int, episode_return: float) -> None:
            speed = frames_per_second(done / (time.perf_counter() - start))
            current: dict[str, Any] = {} if np.isnan(episode_return) else {"current": f"{episode_return:.1f}"}
            bar.update(task, completed=done, speed=speed, **current)

        yield report


@contextlib.contextmanager
def _lines(console: Console, env_steps: int) -> Iterator[Report]:
    """Shows progress as a line for each completed tenth."""
    start, tenth = time.perf_counter(), 0

    def report(done: int, episode_return: float) -> None:
        nonlocal tenth
        if done * 10 // env_steps > tenth:
            tenth = done * 10 // env_steps
            seconds = time.perf_counter() - start
            console.print(
                f"{100 * done // env_steps:3d} %  {frames_per_second(done / seconds)}  "
                f"ETA {seconds * (env_steps / done - 1):.0f} s  return {episode_return:.1f}",
                highlight=False,
            )

    yield report


def say(console: Console, text: str) -> None:
    """Prints a line of plain text, neither highlighted nor wrapped."""
    console.print(text, highlight=False, soft_wrap=True)
