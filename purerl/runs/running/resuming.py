"""Resuming: which settings may change, and whether the checkpoints of a run are sound."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from purerl import config as cfg
from purerl import processes
from purerl.display.progress import say
from purerl.errors import ConfigError
from purerl.runs.describing import config_file, select_options, stop_options
from purerl.runs.describing.config_file import ConfigFile
from purerl.runs.describing.run_directory import CHECKPOINTS
from purerl.store import checkpoint, guards

SOFT = (
    *config_file.LENGTHS,
    "eval_episodes",
    "sample",
    "eval_every",
    "eval_envs",
    "log",
    "diagnostics",
    "checkpoint_seconds",
    "budget_seconds",
    "keep",
    "keep_best",
    "compile",
    "compilation_cache",
    "device",
    "deterministic",
    "threads",
    "num_devices",
    "devices_per_agent",
    "workers",
    "worker_timeout",
    "worker_restarts",
    "data_on",
)
"""The options that may change: the length of a run, and options that its results do not depend on."""
NOW = ("processes",)
"""The options that no run records: they are given anew each time."""
UNSHAPED = ("lanes", "exact")
"""The options that may change with ``--override``, besides floats of a config: they shape no array of the state."""


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """Options of ``purerl resume``, besides the options of the run."""

    strict: bool = False
    """Fail if the newest checkpoint is damaged, instead of resuming from an older one."""
    override: bool = False
    """Also allow changes of options that affect results, such as the learning rate."""
    trust: bool = False
    """Import and run the user modules that the run names, and trust them until their source changes."""


class Resumed(NamedTuple):
    """A run that is resumed.

    - ``directory``: its directory.
    - ``file``: its config file.
    - ``changes``: a line for each change.
    - ``strict``: whether an older checkpoint is refused if the newest one is damaged.
    - ``override``: whether the config may differ from the one that the checkpoints were made with.
    """

    directory: Path
    file: ConfigFile
    changes: list[str]
    strict: bool
    override: bool

    @property
    def finished(self) -> bool:
        """Whether the run had come to its end, and nothing changes."""
        return not self.changes and is_finished(self.directory)


def is_finished(directory: Path) -> bool:
    """Returns whether a run had come to its end."""
    summary = directory / "summary.json"
    status = guards.read_json(summary) if summary.exists() else None
    return isinstance(status, dict) and status.get("status") in ("completed", "diverged")


def changes(before: Any, now: Any, override: bool, soft: Sequence[str] = ()) -> list[str]:
    """Returns a line for each option and each field of the config that has changed.

    Args:
        before: The options and the config of the run, a `Train`.
        now: The new ones, a `Train`.
        override: Whether floats of the config and the options in `UNSHAPED` may change.
        soft: Names that may change besides `SOFT`.

    Raises:
        ConfigError: Something changed that may not; a line for each.
    """
    changed, refused = [], []
    hard = stop_options.FOLLOWS_FROM if getattr(now.options, "stop_at", None) is not None else ()
    if select_options.kind(now.options) != select_options.NONE:  # the last selection follows from the length
        hard = (*hard, *config_file.LENGTHS)
    for old, new in ((before.options, now.options), (before.config, now.config)):
        free = (*UNSHAPED, *(cfg.traced_fields(new) if new is now.config else ()))
        for field in dataclasses.fields(new):
            name, was, value = field.name, getattr(old, field.name, field.default), getattr(new, field.name)
            if was == value or name in NOW or hasattr(ResumeOptions, name):
                continue
            if (name in (*SOFT, *soft) and name not in hard) or (override and name in free):
                changed.append(f"{name}: {was!r} -> {value!r}")
            else:
                advice = "--override changes it" if name in free else "it cannot be changed"
                refused.append(f"{name} = {value!r}: the run has {was!r}; {advice}")
    if refused:
        raise ConfigError("\n".join(refused))
    return changed


def checked(resumed: Resumed, folder: Path, steps: Path) -> dict[str, Any]:
    """Returns what the newest checkpoint says of the run; empty if nothing was saved yet.

    If its card does not fit the config file, the checkpoint is verified before the config file is blamed.

    Args:
        resumed: The run.
        folder: The folder of its checkpoints. An empty one belongs to a run that had saved nothing, and begins anew.
        steps: The folder in it that holds the checkpoints in question.

    Raises:
        ConfigError: There is no ``folder``; or none of the checkpoints is sound; or the config file is not the one that
            they were made with, and ``resumed.override`` is False.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: has no checkpoint")
    digest = config_file.digest(resumed.file.fields)
    fits = lambda about: resumed.override or about.get("config_sha256") == digest
    about = checkpoint.peek(steps)
    if checkpoint.steps(steps) and not (about and fits(about)):
        about = checkpoint.newest(steps, strict=resumed.strict).about
    if about and not fits(about):
        raise ConfigError(f"{resumed.file.path}: was changed since the run was saved; give --override to use it")
    return about


def newest(directory: Path, console: Console, *, strict: bool) -> checkpoint.CheckpointStep | None:
    """Returns the newest sound checkpoint in a directory; None if nothing was saved there yet.

    It prints a line about each damaged one, and one if other versions of libraries wrote the checkpoint.

    Args:
        directory: The directory of a batch's checkpoints.
        console: Where the lines are printed.
        strict: Whether an older checkpoint is refused if the newest one is damaged.

    Raises:
        ConfigError: There is no sound checkpoint, or it is not one of a run.
    """
    if not checkpoint.steps(directory):
        return None
    step = checkpoint.newest(directory, strict=strict)
    if not guards.is_number(step.about.get("seconds")):
        raise ConfigError(f"{step.path}: not the checkpoint of a run")
    for reason in step.damaged.values():
        say(console, f"damaged: {reason}; resuming from {step.number}")
    now = checkpoint.versions()
    other = [f"{name} {was} -> {now[name]}" for name, was in step.versions.items() if now.get(name, was) != was]
    if other:
        say(console, f"the run was saved by other versions; results may differ by rounding: {', '.join(other)}")
    return step


def agreed(value: Any) -> None:
    """Waits until all processes have read where they continue from.

    Args:
        value: What this process has read, as JSON.

    Raises:
        ConfigError: The processes have read different things.
    """
    every = processes.gathered(value)
    if any(each != every[0] for each in every):
        raise ConfigError(f"the processes read different checkpoints: {every}; they must share a file system")


def begin(
    resumed: Resumed, description: Any, options: Any, steps: list[checkpoint.CheckpointStep], console: Console
) -> None:
    """Writes the config file of a resumed run again, prints what changes, and puts damaged checkpoints aside.

    Args:
        resumed: The run.
        description: Its new description.
        options: Its new options.
        steps: The checkpoints that it continues from.
        console: Where the changes are printed.
    """
    file = resumed.file
    for line in resumed.changes:
        say(console, f"changed: {line}")
        if line.startswith("total_steps"):
            say(console, "schedules now end at the new total")
        if line.startswith("devices_per_agent") and getattr(description, "split", {}).get("exact") is False:
            say(console, "shards are now summed in another order; results may differ by rounding")
    history = [*file.history, *resumed.changes]
    config_file.write(resumed.directory, file.command, description, options, history)
    for folder in (resumed.directory / CHECKPOINTS).rglob("*.tmp"):
        shutil.rmtree(folder, ignore_errors=True)
    for step in steps:
        checkpoint.put_aside(step)
