"""The commands ``purerl train``, ``sweep`` and ``plan``."""

import json
from typing import Any

from purerl.cli import parsing, programs
from purerl.cli.machine import is_small, prepared
from purerl.display import output
from purerl.names import choose


def train(args: list[str]) -> int:
    """Runs ``purerl train ALGO``."""
    algo, args, file = parsing.algorithm("train", args)

    from purerl.runs.describing.description import start
    from purerl.runs.describing.options import TrainOptions

    begin = start(file) if file else None
    given = parsing.training("train", algo, TrainOptions, args, begin)
    return _run("train", algo, given, begin)


def sweep(args: list[str]) -> int:
    """Runs ``purerl sweep ALGO``."""
    algo, args, file = parsing.algorithm("sweep", args)

    from purerl import config as cfg
    from purerl.algos import ALGORITHMS
    from purerl.cli import ranges
    from purerl.runs.describing.description import start
    from purerl.runs.describing.options import SweepOptions
    from purerl.runs.describing.sweeps import ENV_PREFIX

    begin = start(file) if file else None
    rest, swept = ranges.extract(args, cfg.traced_fields(ALGORITHMS[algo].Config), ENV_PREFIX)
    given, several = programs.read("sweep", algo, SweepOptions, rest, begin)
    columns = begin.swept if begin and not swept else {}
    problems = [] if swept or columns or several else [f"nothing to sweep: give a number as {ranges.FORMS}"]
    cfg.check(given.options, *problems, *ranges.unused(swept, given.options))
    columns = columns or ranges.configurations(swept, given.options.num_samples, given.options.seed)
    if several:
        from purerl.runs.running.sweep_of_programs import train_programs

        with prepared(given.options):
            described = programs.described(algo, given, begin, columns, several)
            if given.options.dry_run:
                return show_plans(described, given.options, several)
            return train_programs(described, several, given.options)
    return _run("sweep", algo, given, begin, columns)


def plan(args: list[str]) -> int:
    """Runs ``purerl plan ALGO``."""
    algo, args, file = parsing.algorithm("plan", args)

    from purerl import config as cfg
    from purerl.hardware.gpus import GPUS
    from purerl.runs.describing.description import start
    from purerl.runs.describing.options import PlanOptions

    begin = start(file) if file else None
    given, several = programs.read("plan", algo, PlanOptions, args, begin)
    target = given.options.target
    problems = (
        ["measure = True: cannot be with a target, on which nothing is run"] if target and given.options.measure else []
    )
    if given.options.processes:
        problems.append(f"processes = {given.options.processes!r}: a plan needs a single process; omit --processes")
    cfg.check(given.options, *problems)
    if target:
        choose("target", target, GPUS)
    with prepared(given.options, target, is_small(given.options, given.config)):
        descriptions = programs.described(algo, given, begin, begin.swept if begin else {}, several)
        return show_plans(descriptions, given.options, several, target, given.options.measure, given.options.json)


def show_plans(
    descriptions: list[Any],
    options: Any,
    several: dict[str, list[Any]],
    target: str = "",
    measured: bool = False,
    as_json: bool = False,
) -> int:
    """Prints the plan of each program of a run, and returns the exit code."""
    from purerl.population import planning
    from purerl.runs.running import forecast

    plans = [forecast.plan(description, options, target, measured) for description in descriptions]
    if as_json:
        rows = [cost._asdict() | (speed._asdict() if speed else {}) for cost, speed in plans]
        output.show(json.dumps(rows if several else rows[0], indent=2))
        return 0
    for index, (cost, speed) in enumerate(plans):
        if several:
            output.show(f"{'' if index == 0 else chr(10)}program {index}: {programs.in_words(several, index)}")
        output.show(planning.in_words(cost))
        if speed:
            output.show(speed.in_words())
    return 0


def _run(command: str, algo: str, given: parsing.Train, begin: Any, swept: dict[str, list[float]] | None = None) -> int:
    """Trains and returns the exit code."""
    from purerl.runs.describing.config_file import FRESH
    from purerl.runs.describing.description import describe
    from purerl.runs.running.train import train

    options = given.options
    with prepared(options, small=not swept and is_small(options, given.config)):
        described = describe(algo, options, given.config, begin or FRESH, swept or {})
        return show_plans([described], options, {}) if options.dry_run else train(described, options, command)
