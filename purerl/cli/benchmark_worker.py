"""The process of ``purerl benchmark`` that computes one workload: ``python -m purerl.cli.benchmark_worker REQUEST``."""

import json
import sys
from typing import Any, NamedTuple

from purerl.benchmarks import turns
from purerl.cli import parsing
from purerl.cli.machine import check_device, choose_devices, computing, is_small
from purerl.errors import ConfigError

MODULE = "purerl.cli.benchmark_worker"
_NAMES = """
seed out overwrite warm_start keep_best eval_episodes sample eval_every stop_at stop_episodes log diagnostics dry_run
yes checkpoint_seconds keep processes shards exact devices_per_agent agents_at_once compilation_cache
"""
NO_EFFECT = _NAMES.split()
"""Options of ``purerl train`` that no benchmark obeys."""


class Given(NamedTuple):
    """What words that follow ``purerl train`` say: the algorithm, options and config, and the values of a file."""

    algo: str
    options: Any
    config: Any
    begin: Any


def read(words: list[str]) -> Given:
    """Reads the words that follow ``purerl train``. JAX computes nothing, and looks for no device.

    Raises:
        ConfigError: A word is wrong, or an option has no effect here.
    """
    from purerl.algos import ALGORITHMS
    from purerl.benchmarks.trainings import is_hosted
    from purerl.runs.describing.description import start
    from purerl.runs.describing.options import TrainOptions

    algo, rest, file = parsing.algorithm("train", words)
    if ALGORITHMS[algo].required:
        raise ConfigError(f"algorithm = {algo!r}: learns from recorded play alone, so it has no frames/s")
    begin = start(file) if file else None
    given = parsing.training("train", algo, TrainOptions, rest, begin)
    options, usual = given.options, TrainOptions(env="")
    changed = [name for name in NO_EFFECT if getattr(options, name) != getattr(usual, name)]
    problems = [f"{name} = {getattr(options, name)!r}: has no effect in a benchmark" for name in changed]
    if is_hosted(options.env) and options.num_seeds > 1:
        problems.append(f"num_seeds = {options.num_seeds}: must be 1 for {options.env}, which the host steps")
    if problems:
        raise ConfigError("\n".join(problems))
    return Given(algo, options, given.config, begin)


def job(request: dict[str, Any]) -> turns.Job:
    """Makes the job of the training whose words are ``request["options"]``, as ``purerl train`` would run it.

    Devices and threads are chosen first. ``until`` in the request is that of `trainings.job`.

    Raises:
        ConfigError: The training cannot be described, or this machine has no such device.
    """
    from purerl.benchmarks import trainings
    from purerl.runs.describing.config_file import FRESH
    from purerl.runs.describing.description import describe

    given = read(request["options"])
    if trainings.is_hosted(given.options.env):
        return trainings.hosted_job(request["options"], given.config.total_steps)
    choose_devices(given.options, small=is_small(given.options, given.config))
    check_device(given.options)
    described = describe(given.algo, given.options, given.config, given.begin or FRESH)
    return trainings.job(described, given.options, request.get("until"), computing(given.options))


def main() -> None:
    """Serves the request that the command line has, with the exit codes of the command line."""
    from purerl.cli import EXIT_BAD_INPUT, EXIT_OUT_OF_MEMORY

    try:
        turns.serve(job, json.loads(sys.argv[1]))
    except ConfigError as error:
        print(str(error), file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except MemoryError as error:
        print(f"out of memory: {error}", file=sys.stderr)
        sys.exit(EXIT_OUT_OF_MEMORY)


if __name__ == "__main__":
    main()
