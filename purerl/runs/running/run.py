"""A run, from its description to its results: begun and resumed in one way, be it a training or a search."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.console import Console

from purerl import processes
from purerl.display.progress import say, waiting
from purerl.names import here
from purerl.runs.describing import config_file
from purerl.runs.describing.machine import last_compile_time, note_compile_time
from purerl.runs.describing.run_directory import CHECKPOINTS, claim, hold
from purerl.runs.running import resuming, run_loop
from purerl.runs.running.resuming import Resumed
from purerl.store import trusted_modules
from purerl.store.checkpoint import CheckpointStep

EXIT_DIVERGED = 3


class ResumePoint(NamedTuple):
    """What a run continues from: for each batch of members its checkpoint; None: the batch begins at its start.

    A search is one batch.
    """

    steps: Sequence[CheckpointStep | None]

    @property
    def done(self) -> list[int]:
        """The number of finished iterations, or generations, of each batch."""
        return [step.number if step else 0 for step in self.steps]

    @property
    def seconds(self) -> float:
        """The seconds that were spent before."""
        return max((step.about["seconds"] for step in self.steps if step), default=0.0)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that is carried out. `begin` and `resume` are the same for all; a training and a search add the rest.

    - ``description``: what it is to do.
    - ``setup``: what the description stands for: the `Setup` of a training, the `Evolution` of a search.
    - ``options``: the options that its results do not depend on.
    - ``directory``: its directory.
    - ``console``: where it prints.
    """

    description: Any
    setup: Any
    options: Any
    directory: Path
    console: Console

    FILES: ClassVar[Sequence[str]]
    """The files and folders that such a run writes."""
    LENGTH: ClassVar[str]
    """The option that makes such a run longer."""
    RESULT: ClassVar[str]
    """The file with its result, without which it has not come to its end."""

    def folder(self, batch: int) -> Path:
        """Returns the folder of the checkpoints of a batch."""
        raise NotImplementedError

    def batches(self, batch_size: int) -> int:
        """Returns the number of batches. A search is one."""
        return 1

    def batch_size(self, about: dict[str, Any]) -> int | str:
        """Returns the number of members in a batch by what the newest checkpoint says (``about``), or "auto".

        Raises:
            ConfigError: It does not fit the run.
        """
        return 1

    def check_length(self, done: int) -> None:
        """Raises `ConfigError` if a batch has ``done`` more than it should in all."""
        raise NotImplementedError

    def advise(self) -> None:
        """Prints advice to who begins the run. A search has none."""

    def announce(self) -> None:
        """Prints what is about to compile."""
        raise NotImplementedError

    def compile(self, batch_size: int | str, stage: Callable[[str], None]) -> Any:
        """Compiles and returns the program, which has ``batch_size`` and ``compile_seconds``.

        ``stage`` is called with the name of each stage that begins after tracing.
        """
        raise NotImplementedError

    def expected_seconds(self, program: Any) -> float:
        """Estimates the seconds of the whole run; 0 if its speed is not known before it runs."""
        raise NotImplementedError

    def keep_beginning(self) -> None:
        """Writes what the run begins with, beside its description, into its directory. A search writes nothing."""

    def cut_logs(self, batch_size: int, done: list[int]) -> None:
        """Cuts the logs to what checkpoints count, ``done`` of each batch. Raises `ConfigError` if rows are lost."""
        raise NotImplementedError

    def carry_out(self, program: Any, so_far: ResumePoint) -> int:
        """Runs the program to the end or an interrupt, writes the results, and returns the exit code."""
        raise NotImplementedError

    def begin(self, command: str, compiled: Callable[[], None] = lambda: None) -> int:
        """Begins the run in its directory, and returns the exit code.

        Args:
            command: The command that makes such a run: "train", "sweep" or "evolve".
            compiled: Called once the program is compiled, before anything is written.

        Raises:
            ConfigError: The run is not possible. Nothing is compiled or written.
            DoesNotFit: The run does not fit into memory. Nothing is left behind.
        """
        with hold(self.directory, self.FILES, overwrite=self.options.overwrite):
            self.advise()
            program = self._compiled(self.batch_size({}))
            run_loop.confirm(self.console, self.options.yes, self.expected_seconds(program))
            compiled()
            if processes.is_first():
                claim(self.directory, self.FILES)
                config_file.write(self.directory, command, self.description, self.options)
                trusted_modules.remember(self.directory, self.description.code)
                self.keep_beginning()
            return self.carry_out(program, ResumePoint([None] * self.batches(program.batch_size)))

    def resume(self, resumed: Resumed) -> int:
        """Goes on with the run, and returns the exit code. The results have the bits of a run without an interrupt.

        Args:
            resumed: What has changed.

        Raises:
            ConfigError: There is nothing sound to continue from. Nothing is written.
        """
        with hold(self.directory, self.FILES, resume=True):
            batch_size, so_far = self.saved(resumed)
            self.check_length(max(so_far.done, default=0))
            if resumed.finished and (self.directory / self.RESULT).exists():
                option = self.LENGTH.replace("_", "-")
                say(self.console, f"{self.directory}: the run is finished; give --{option} to continue it")
                return 0
            program = self._compiled(batch_size)
            so_far = so_far if so_far.steps else ResumePoint([None] * self.batches(program.batch_size))
            resuming.agreed([step.path.name if step else None for step in so_far.steps])
            if processes.is_first():
                self.cut_logs(program.batch_size, so_far.done)
                steps = [step for step in so_far.steps if step]
                resuming.begin(resumed, self.description, self.options, steps, self.console)
            processes.gathered(None)
            return self.carry_out(program, so_far)

    def saved(self, resumed: Resumed) -> tuple[int | str, ResumePoint]:
        """Returns the size of a batch, and the newest sound checkpoint of each; no batch if nothing was saved yet.

        Raises:
            ConfigError: As for `resuming.checked` and `resuming.newest`.
        """
        about = resuming.checked(resumed, self.directory / CHECKPOINTS, self.folder(0))
        batch_size = self.batch_size(about)
        folders = [self.folder(k) for k in range(self.batches(int(batch_size)) if batch_size != "auto" else 0)]
        return batch_size, ResumePoint([resuming.newest(each, self.console, strict=resumed.strict) for each in folders])

    def _compiled(self, batch_size: int | str) -> Any:
        """Compiles and returns the program, with lines about it."""
        digest, announce = self.description.digest, functools.cache(self.announce)
        with waiting(self.console, "tracing", last_compile_time(digest)) as stages:

            def stage(name: str) -> None:
                announce()
                stages(name)

            program = self.compile(batch_size, stage)
        if processes.is_first():
            note_compile_time(digest, program.compile_seconds)
        count = self.batches(program.batch_size)
        batches = f", {count} batches of {program.batch_size}" if count > 1 else ""
        say(self.console, f"compiled in {program.compile_seconds:.1f} s{batches}")
        return program


def exit_code(received: list[int], diverged: bool) -> int:
    """Returns the exit code of a run that has received signals, has diverged, or neither."""
    if received:
        return 128 + received[0]
    return EXIT_DIVERGED if diverged else 0


def place(options: Any, name: str) -> Path:
    """Returns the directory of a new run: the one of the options, or one with its ``name`` and the time."""
    return here(options.out or processes.from_first(f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}"))
