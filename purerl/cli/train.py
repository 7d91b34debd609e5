"""``purerl train``, ``sweep`` and ``plan``."""

import json
from typing import Any

from purerl.cli import parsing
from purerl.cli.machine import prepared


def train(args: list[str]) -> int:
    """``purerl train ALGO``."""
    algo = parsing.algorithm("train", args)

    from purerl.runs.options import TrainOptions

    given = parsing.training("train", algo, TrainOptions, args[1:])
    return _run(algo, given)


def sweep(args: list[str]) -> int:
    """``purerl sweep ALGO``."""
    algo = parsing.algorithm("sweep", args)

    from purerl import config as cfg
    from purerl.algos import ALGORITHMS
    from purerl.cli import ranges
    from purerl.runs.description import ENV_PREFIX
    from purerl.runs.options import SweepOptions

    rest, swept = ranges.extract(args[1:], cfg.traced_fields(ALGORITHMS[algo].Config), ENV_PREFIX)
    given = parsing.training("sweep", algo, SweepOptions, rest)
    problems = [] if swept else [f"nothing to sweep: give a number as {ranges.FORMS}"]
    cfg.check(given.options, *problems, *ranges.unused(swept, given.options))
    return _run(algo, given, ranges.configurations(swept, given.options.num_samples, given.options.seed))


def plan(args: list[str]) -> int:
    """``purerl plan ALGO``."""
    algo = parsing.algorithm("plan", args)

    from purerl.population import planning
    from purerl.runs import measure
    from purerl.runs.description import describe
    from purerl.runs.options import PlanOptions

    given = parsing.training("plan", algo, PlanOptions, args[1:])
    with prepared(given.options):
        description = describe(algo, given.options, given.config, parsing.env_params(given.options.env_params))
        cost, speed = measure.plan(description, given.options)
    if given.options.json:
        print(json.dumps(cost._asdict() | (speed._asdict() if speed else {}), indent=2))
    else:
        print(planning.in_words(cost), *([measure.in_words(speed)] if speed else []), sep="\n")
    return 0


def _run(algo: str, given: parsing.Train[Any, Any], swept: dict[str, list[float]] | None = None) -> int:
    """Trains; returns the exit code."""
    from purerl.runs.description import describe
    from purerl.runs.train import train

    options = given.options
    with prepared(options):
        description = describe(algo, options, given.config, parsing.env_params(options.env_params), swept)
        return train(description, options)
