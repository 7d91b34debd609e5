"""What may change when a run goes on, and whether what it goes on from is sound."""

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
from purerl.runs.describing import config_file, early
from purerl.runs.describing.config_file import ConfigFile
from purerl.runs.describing.directory import CHECKPOINTS
from purerl.store import checkpoint, json_files, untrusted

SOFT = (
    *config_file.LENGTHS,
    "eval_episodes",
    "eval_every",
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
    "kernels",
    "workers",
    "worker_timeout",
    "worker_restarts",
)
"""What may change: how long a run is, and what its results do not follow from."""
NOW = ("processes",)
"""What a run knows nothing of: it is told anew each time."""
UNSHAPED = ("lanes", "exact")
"""What may change beside the floats of a config if somebody insists: it shapes no array of the run's state."""


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """What a person can ask for when a run goes on, beside what the run was told."""

    strict: bool = False
    """Refuse to go on from an older checkpoint if the newest one is damaged."""
    override: bool = False
    """Also change numbers that the results follow from, such as the learning rate."""
    trust: bool = False
    """Import the modules of somebody's own that the run names, which runs their code; asked once."""


class Resumed(NamedTuple):
    """A run that goes on: its directory, its config file, a line for each change, and whether an older checkpoint, and
    another config than the checkpoints', will do."""

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
    """Whether a run had come to its end."""
    summary = directory / "summary.json"
    status = json_files.read_json(summary) if summary.exists() else None
    return isinstance(status, dict) and status.get("status") in ("completed", "diverged")


def changes(before: Any, now: Any, override: bool, soft: Sequence[str] = ()) -> list[str]:
    """A line for each option and each field of the config that ``now`` has changed since ``before``.

    Both are a `Train` of options and config. What is ``soft`` may change beside `SOFT`. Raises `ConfigError` with a
    line for each that may not change.
    """
    found, refused = [], []
    hard = early.FOLLOWS_FROM if getattr(now.options, "stop_at", None) is not None else ()
    for old, new in ((before.options, now.options), (before.config, now.config)):
        free = (*UNSHAPED, *(cfg.traced_fields(new) if new is now.config else ()))
        for field in dataclasses.fields(new):
            name, was, value = field.name, getattr(old, field.name, field.default), getattr(new, field.name)
            if was == value or name in NOW or hasattr(ResumeOptions, name):
                continue
            if (name in (*SOFT, *soft) and name not in hard) or (override and name in free):
                found.append(f"{name}: {was!r} -> {value!r}")
            else:
                advice = "--override changes it all the same" if name in free else "it cannot change"
                refused.append(f"{name} = {value!r}: the run has {was!r}; {advice}")
    if refused:
        raise ConfigError("\n".join(refused))
    return found


def checked(resumed: Resumed, folder: Path, steps: Path) -> dict[str, Any]:
    """What the newest checkpoint among ``steps`` says of the run; empty if nothing was saved yet.

    Raises `ConfigError` if there is no ``folder`` of checkpoints (an empty one belongs to a run that had saved nothing,
    and begins anew), if none of them is sound, or if the config file is not the one that they were made with. What a
    card says is verified before the config file is blamed.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: holds no checkpoint")
    digest = config_file.digest(resumed.file.fields)
    fits = lambda about: resumed.override or about.get("config_sha256") == digest
    about = checkpoint.peek(steps)
    if checkpoint.steps(steps) and not (about and fits(about)):
        about = checkpoint.newest(steps, strict=resumed.strict).about
    if about and not fits(about):
        raise ConfigError(f"{resumed.file.path}: was changed since the run was saved; --override goes on all the same")
    return about


def newest(directory: Path, console: Console, *, strict: bool) -> checkpoint.Step | None:
    """The newest sound step in a directory, None if nothing was saved there yet; what is wrong with it is told."""
    if not checkpoint.steps(directory):
        return None
    step = checkpoint.newest(directory, strict=strict)
    if not untrusted.is_number(step.about.get("seconds")):
        raise ConfigError(f"{step.path}: not the checkpoint of a run")
    for reason in step.damaged.values():
        say(console, f"damaged: {reason}; going on from {step.number}")
    now = checkpoint.versions()
    other = [f"{name} {was} -> {now[name]}" for name, was in step.versions.items() if now.get(name, was) != was]
    if other:
        say(console, f"the run was saved by other versions, so that bits may differ: {', '.join(other)}")
    return step


def agreed(found: Any) -> None:
    """Returns once all processes have read where they go on from. Raises `ConfigError` unless they found the same."""
    every = processes.gathered(found)
    if any(each != every[0] for each in every):
        raise ConfigError(f"the processes read different checkpoints: {every}; must be of one file system")


def begin(resumed: Resumed, description: Any, options: Any, steps: list[checkpoint.Step], console: Console) -> None:
    """Writes the run's config file again with what changes, tells it, and puts damaged checkpoints aside."""
    file = resumed.file
    for line in resumed.changes:
        say(console, f"changed: {line}")
        if line.startswith("total_steps"):
            say(console, "what is annealed over the training now ends at the new total")
        if line.startswith("devices_per_agent") and getattr(description, "split", {}).get("exact") is False:
            say(console, "what the shards of an agent sum is added in another order now, so that bits may differ")
    history = [*file.history, *resumed.changes]
    config_file.write(resumed.directory, file.command, description, options, history)
    for folder in (resumed.directory / CHECKPOINTS).rglob("*.tmp"):
        shutil.rmtree(folder, ignore_errors=True)
    for step in steps:
        checkpoint.put_aside(step)
