"""The command ``purerl resume RUN``, for every kind of run."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from purerl.cli import parsing, programs
from purerl.cli.machine import is_small, prepared
from purerl.display import output
from purerl.errors import ConfigError
from purerl.names import choose, here

USAGE = """usage: purerl resume RUN [OPTIONS]

Continues a training, a sweep or a search from its newest checkpoint. On a CPU the results are identical to those of \
an uninterrupted run.

  --total-steps N  train each agent for N environment steps in total (a training or a sweep; from
                   recorded play alone: N gradient steps)
  --generations N  search for N generations in total (a search)
  --strict         fail if the newest checkpoint is damaged, instead of resuming from an older one
  --override       also allow changes of options that affect results, such as --learning-rate
  --trust          import and run the user modules that the run names, and trust them until their source changes
  --processes ...  run over several processes; see purerl train ALGO --help all

The other options of the command that started the run can be given too; purerl resume RUN --help lists them. Options \
that do not affect results, such as --checkpoint-seconds, and the path of a moved dataset, such as --demos FILE, take \
the new value. Any other option must have the value that the run has."""


def resume(args: list[str]) -> int:
    """Runs ``purerl resume RUN``."""
    if not args or args[0] in ("-h", "--help"):
        print(output.flowing(USAGE))
        return 0 if args else 2
    if args[0].startswith("-"):
        raise ConfigError(f"{args[0]}: name the run directory first; see purerl resume --help")

    directory, rest = here(args[0]), args[1:]
    file, algo = opened(directory, "--trust" in rest)
    return (_programs if file.fields.get("programs") else _run)(directory, file, algo, rest)


def opened(directory: Path, trust: bool) -> tuple[Any, str]:
    """Reads the config file of a run that goes on, and returns it with the algorithm's name.

    Raises:
        ConfigError: There is no such file; or it names no algorithm, or code that is not trusted.
    """
    from purerl.algos import ALGORITHMS
    from purerl.runs.describing import config_file
    from purerl.store import trusted_modules

    file = config_file.read(directory / config_file.NAME)
    config_file.trusted(file, (), "--trust imports it", trusted_modules.memory(trust))
    return file, choose(f"{file.path}: algo", file.take("algo", str, ""), ALGORITHMS)


def _programs(directory: Path, file: Any, algo: str, args: list[str]) -> int:
    """Resumes a sweep of several programs, each of which is a run in a folder of its own."""
    from purerl import processes
    from purerl.runs.describing import config_file
    from purerl.runs.running import resuming
    from purerl.runs.running.sweep_of_programs import begin, resume_programs

    start, options, *_ = training(file, algo)
    before, given = _given(start, options, directory, algo, args)
    changed = resuming.changes(before, given, given.options.override, tuple(start.datasets))
    if twice := [line for line in changed if line.partition(":")[0] in start.programs]:
        raise ConfigError("\n".join(f"{line}: is swept and cannot be changed" for line in twice))
    with prepared(given.options):
        descriptions = programs.described(algo, given, _moved(start, given.options), start.swept, start.programs)

        def one(index: int) -> int:
            place = directory / str(index)
            if not (place / config_file.NAME).exists():
                return begin(descriptions[index], given.options, directory, index)
            of_program = config_file.read(place / config_file.NAME)
            same = config_file.digest(of_program.fields) == descriptions[index].digest
            if not changed and not same and not given.options.override:
                raise ConfigError(f"{of_program.path}: is not program {index} of {file.path}")
            return _run(place, of_program, algo, args)

        def begun() -> None:
            if changed and processes.is_first():
                history = [*file.history, *changed]
                config_file.write(directory, "sweep", descriptions[0], given.options, history, programs=start.programs)

        return resume_programs(directory, start.programs, bool(changed), one, begun)


def _run(directory: Path, file: Any, algo: str, args: list[str]) -> int:
    """Resumes a training, a sweep or a search."""
    from purerl.runs.running.resuming import Resumed, changes
    from purerl.runs.running.streaming import placed

    start, options, describe, kind = (_search if file.command == "evolve" else training)(file, algo)
    before, given = _given(start, options, directory, algo, args)
    changed = changes(before, given, given.options.override, tuple(start.datasets))
    small = file.command == "train" and is_small(given.options, given.config)
    with prepared(given.options, small=small):
        described = describe(algo, given.options, given.config, _moved(start, given.options))
        resumed = Resumed(directory, file, changed, given.options.strict, given.options.override)
        return placed(given.options, lambda settled: kind.of(described, settled, directory).resume(resumed))


def training(file: Any, algo: str) -> tuple[Any, type, Callable[..., Any], Any]:
    """Returns what a training or a sweep starts from, the class of its options, how it is described, and its `Run`."""
    from purerl.runs.describing.description import describe, start
    from purerl.runs.describing.options import SweepOptions, TrainOptions
    from purerl.runs.running.train import TrainingRun

    options = SweepOptions if file.command == "sweep" else TrainOptions
    return start(file), parsing.with_learned(options, algo), describe, TrainingRun


def _search(file: Any, algo: str) -> tuple[Any, type, Callable[..., Any], Any]:
    """Returns for a search what `training` returns for a training."""
    from purerl.learned import SOCKET_NAMES
    from purerl.meta.description import describe, start
    from purerl.meta.search import SearchRun
    from purerl.runs.describing.options import EvolveOptions

    socket = file.take("socket", str, "")
    if ":" not in socket:
        choose(f"{file.path}: socket", socket, SOCKET_NAMES)
    return start(file), parsing.with_settings(EvolveOptions, socket), functools.partial(describe, socket), SearchRun


def _moved(start: Any, options: Any) -> Any:
    """Returns what a run starts from, with the paths of its datasets that the options have."""
    from purerl.runs.describing import datasets

    return start._replace(datasets=datasets.moved(start.datasets, options))


def _given(start: Any, options: type, directory: Path, algo: str, args: list[str]) -> tuple[Any, Any]:
    """Reads the options and the config of a run as they were, and as they are now."""
    from purerl.runs.running.resuming import ResumeOptions

    kind: type = dataclasses.make_dataclass(
        options.__name__, [], bases=(ResumeOptions, options), namespace={"__doc__": options.__doc__}, frozen=True
    )
    prog = f"purerl resume {directory}"
    return parsing.started(start, kind, algo), parsing.with_preset(kind, algo, prog, args, start)
