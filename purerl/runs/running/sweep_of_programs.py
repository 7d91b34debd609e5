"""Sweeps over settings that shape the program: an ordinary run for each program, and a ranking of all of them.

Each run has a folder of its own, ``RUN/0`` and so on, which every command accepts; the ranking lies above them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl import processes
from purerl.display.progress import console, say
from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.runs.describing import config_file, sweeps
from purerl.runs.describing.description import TrainingDescription
from purerl.runs.describing.run_directory import clear, hold, resume_command
from purerl.runs.describing.sweeps import as_text, columns
from purerl.runs.reading import evaluation
from purerl.runs.running import streaming
from purerl.runs.running.resuming import is_finished
from purerl.runs.running.run import EXIT_DIVERGED, place
from purerl.runs.running.train import FILES, TrainingRun
from purerl.store import guards, writing

SUMMED = "all_env_steps", "all_updates", "wall_seconds", "compile_seconds"
PER_SEED = "alive_per_seed", "return_per_seed", "return_std_per_seed", "length_per_seed", "unfinished_per_seed"
SHARED = "algo", "env", "env_params", "seeds"


def train_programs(descriptions: Sequence[TrainingDescription], programs: dict[str, list[Any]], options: Any) -> int:
    """Trains a run for each of several descriptions, ranks all configurations, and returns the exit code.

    The directory is written once the first program is compiled. Errors are those of `train`, and the one below.

    Args:
        descriptions: The descriptions of the runs.
        programs: The settings in which they differ: by name the value for each description.
        options: The options of the command.

    Raises:
        ConfigError: The options ask for a warm start.
    """
    if options.warm_start:
        raise ConfigError(f"warm_start = {options.warm_start!r}: is not supported for a sweep of several programs")
    first = descriptions[0]
    directory = place(options, first.name)

    def begun() -> None:
        if not processes.is_first():
            return
        clear(directory, [name for name in FILES if name != "0"])
        config_file.write(directory, "sweep", first, options, programs=programs)

    def one(index: int) -> int:
        return begin(descriptions[index], options, directory, index, begun if index == 0 else lambda: None)

    with hold(directory, FILES, overwrite=options.overwrite):
        return _each(directory, programs, len(descriptions), one)


def begin(
    description: TrainingDescription,
    options: Any,
    directory: Path,
    index: int,
    begun: Callable[[], None] = lambda: None,
) -> int:
    """Trains a run of a sweep from its start, and returns the exit code.

    Args:
        description: The description of the run.
        options: The options of the command.
        directory: The directory of the sweep.
        index: The number of the run.
        begun: Called once the program of the run is compiled.
    """
    command = "sweep" if description.swept else "train"
    folder = directory / str(index)
    return streaming.placed(options, lambda known: TrainingRun.new(description, known, folder).begin(command, begun))


def resume_programs(
    directory: Path,
    programs: dict[str, list[Any]],
    changed: bool,
    one: Callable[[int], int],
    begun: Callable[[], None],
) -> int:
    """Resumes the runs of a sweep, ranks all configurations, and returns the exit code.

    Args:
        directory: The directory of the sweep.
        programs: The settings in which the runs differ: by name the value for each run.
        changed: Whether finished runs are resumed as well, because something changes.
        one: ``one(index)`` resumes a run and returns its exit code.
        begun: Called before the first run, once the directory is held.

    Raises:
        ConfigError: The directory cannot be held (`hold`).
    """
    with hold(directory, FILES, resume=True):
        finished = lambda index: processes.from_first(is_finished(directory / str(index)))
        begun()
        go_on = lambda index: 0 if finished(index) and not changed else one(index)
        return _each(directory, programs, len(next(iter(programs.values()))), go_on)


def _each(directory: Path, programs: dict[str, list[Any]], count: int, one: Callable[[int], int]) -> int:
    """Carries out one run after another, and ranks them once all are done; returns the exit code."""
    to = console()
    for index in range(count):
        values = ", ".join(f"{name} {as_text(column[index])}" for name, column in programs.items())
        say(to, f"program {index + 1} of {count}: {values}")
        code = one(index)
        if code not in (0, EXIT_DIVERGED):
            say(to, f"resume the whole sweep with: {resume_command(directory)}")
            return code
    return int(processes.from_first(_rank(directory, programs, count) if processes.is_first() else 0))


def _rank(directory: Path, programs: dict[str, list[Any]], count: int) -> int:
    """Writes the ranking and the summary of all runs of a sweep; returns the exit code."""
    places = [directory / str(index) for index in range(count)]
    summaries = [guards.contents(place, "summary.json") for place in places]
    if lacking := [str(p) for p, s in zip(places, summaries, strict=True) if not guards.listed(s, PER_SEED[1])]:
        raise ConfigError(f"{lacking[0]}: has no results")
    joined = {name: [x for summary in summaries for x in guards.listed(summary, name)] for name in PER_SEED}
    scores = np.where(joined["alive_per_seed"], [guards.plotted(x) for x in joined["return_per_seed"]], np.nan)
    swept = columns(programs, summaries[0].get("swept") or {})
    summed = {name: sum(guards.number(summary.get(name)) or 0.0 for summary in summaries) for name in SUMMED}
    manners = [evaluation.manner_of(summary) for summary in summaries]
    how = {name: x for name, x in manners[0].items() if all(each.get(name) == x for each in manners)}
    summary = {
        **{name: summaries[0][name] for name in SHARED},
        "status": "completed" if any(joined["alive_per_seed"]) else "diverged",
        "swept": swept,
        "programs": count,
        **{name: x for name, x in summed.items() if not name.startswith("all_")},
        **_counts(summaries, summed),
        **joined,
        **how,
        "return_mean": float(np.nanmean(scores)) if np.isfinite(scores).any() else None,
        "return_iqm": aggregates.reported_estimate(scores)._asdict(),
    }
    writing.write_json(directory / "summary.json", summary)
    sweeps.write_sweep(directory, sweeps.rank(swept, scores, count) | how)
    return 0 if any(joined["alive_per_seed"]) else EXIT_DIVERGED


def _counts(summaries: list[dict[str, Any]], summed: dict[str, float]) -> dict[str, Any]:
    """Returns what the summary of all runs has of their lengths and speeds (`train.counts`)."""
    counted: dict[str, Any] = {}
    for axis, pace in ("env_steps", "steps_per_second"), ("updates", "updates_per_second"):
        if axis in summaries[0]:
            counted[axis] = max(guards.count(summary.get(axis)) for summary in summaries)
            counted[f"all_{axis}"] = int(summed[f"all_{axis}"])
            counted[pace] = summed[f"all_{axis}"] / max(summed["wall_seconds"], 1e-9)
    return counted
