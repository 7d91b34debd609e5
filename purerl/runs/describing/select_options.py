"""Selection among the configurations of a sweep: as a user asks for it, as a description has it, and what it costs."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from purerl import config as cfg
from purerl.errors import ConfigError
from purerl.loops import stopping
from purerl.population import selection
from purerl.runs.describing.sweeps import config_part, configurations, env_part
from purerl.types import Env, Trainer

NONE, PBT, HALVING = "none", "pbt", "halving"
KEYS = {"kind", "every"}
USUAL_INTERVALS = 20
"""The number of intervals of population-based training into which a training is cut, unless it is given."""
MOST_CORNERS = 2**10
"""The most combinations of the ends of swept ranges that are checked."""


class Interval(NamedTuple):
    """The part of a training up to iteration ``end``, in which so many ``configurations`` train."""

    end: int
    configurations: int


def kind(options: Any) -> str:
    """Returns the kind of selection that options ask for; a command without that option has `NONE`."""
    return str(getattr(options, "select", NONE))


def described(options: Any, config: Any, swept: dict[str, list[float]]) -> dict[str, Any]:
    """Returns the entry of a description that says how configurations are selected; empty if they are not.

    It has the ``kind`` and the number ``every`` of frames of an agent between two selections, of halving until the
    first.
    """
    if kind(options) == NONE:
        return {}
    parts = USUAL_INTERVALS if options.select == PBT else 2 ** _rungs(configurations(swept))
    return {"kind": options.select, "every": options.select_every or math.ceil(config.total_steps / parts)}


def options(described: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns the options that a description in a file stands for.

    Raises:
        ConfigError: If the description has a fault; each line begins with ``source``.
    """
    if lines := problems(described):
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines))
    return {"select": described["kind"], "select_every": described["every"]} if described else {}


def problems(described: dict[str, Any]) -> list[str]:
    """Returns a line if a file's description of a selection has a fault."""
    sound = set(described) == KEYS and described["kind"] in (PBT, HALVING)
    if not described or (sound and type(described["every"]) is int and 0 < described["every"] < 2**63):
        return []
    return [f"select: must have the kind {PBT} or {HALVING}, and the frames every between selections"]


def problems_of_options(
    options: Any, config: Any, env: Env, swept: dict[str, list[float]], of_config: Callable[[Any], list[str]]
) -> list[str]:
    """Returns a line for each reason why the configurations of a sweep cannot be selected as options ask.

    Args:
        options: The options of the command.
        config: The config of the algorithm.
        env: The environment.
        swept: The swept values.
        of_config: Lists the problems of a config, one a line.
    """
    select = kind(options)
    if select == NONE:
        given = getattr(options, "select_every", 0)
        return [f"select_every = {given}: has no effect without select"] if given else []
    count, asked = configurations(swept), f"select = {select!r}:"
    if count < 2:
        return [f"{asked} needs at least 2 configurations, of numbers that are swept"]
    lines = [f"{name}: cannot be swept with select; agents are compared in one environment" for name in env_part(swept)]
    if options.select_every >= config.total_steps:
        lines.append(f"select_every = {options.select_every}: must be less than total_steps = {config.total_steps}")
    if options.stop_at is not None:
        lines.append(f"stop_at = {options.stop_at!r}: cannot be combined with select")
    if env.host:
        lines.append(f"{asked} is not supported for the host environment {env.name}")
    if options.processes:
        lines.append(f"processes = {options.processes!r}: select needs a single process")
    if options.shards > 1:
        lines.append(f"shards = {options.shards}: select is not supported with shards")
    if 0 < options.agents_at_once < count * options.num_seeds:
        lines.append(f"agents_at_once = {options.agents_at_once}: select needs all agents at once")
    if select == PBT and options.num_seeds > 1:
        lines.append(
            f"num_seeds = {options.num_seeds}: {PBT} has an agent for each configuration; give more configurations, "
            "such as --num-samples"
        )
    if select == PBT and "learning_rate" in swept and getattr(config, "adapt_learning_rate", 0) > 0:
        lines.append(f"learning_rate: cannot be swept with {PBT}, since adapt_learning_rate moves it after the start")
    if select == PBT and options.keep_best:
        lines.append(f"keep_best = True: is not supported with {PBT}, whose agents change their values")
    return lines or (_corner_problems(config, config_part(swept), of_config) if select == PBT else [])


def ranges(swept: dict[str, list[float]]) -> dict[str, tuple[float, float]]:
    """Returns the lowest and the highest value of each swept field, within which population-based training explores."""
    return {name: (min(column), max(column)) for name, column in swept.items()}


def _corner_problems(config: Any, swept: dict[str, list[float]], of_config: Callable[[Any], list[str]]) -> list[str]:
    """Returns the problems of configs with the ends of the swept ranges, all of which agents may come to have."""
    corners = list(itertools.islice(itertools.product(*ranges(swept).values()), MOST_CORNERS))
    columns = {name: list(column) for name, column in zip(swept, zip(*corners, strict=True), strict=True)}
    return [f"{line} ({PBT} explores the whole ranges)" for line in cfg.sweep_problems(config, columns, of_config)]


def intervals(described: dict[str, Any], count: int, env_steps: int, num_iterations: int) -> list[Interval]:
    """Returns the intervals of a training of ``count`` configurations, the last of which ends with it.

    A selection follows each of the others. ``env_steps`` are the frames of an iteration of an agent; intervals are
    rounded up to whole iterations. Those of halving double, as `selection.successive_halving` has them.

    Raises:
        ConfigError: There is a selection, but the training is too short for one.
    """
    if not described:
        return [Interval(num_iterations, count)]
    every = math.ceil(described["every"] / env_steps)
    if described["kind"] == PBT:
        found = [Interval(end, count) for end in range(every, num_iterations, every)]
    else:
        sizes = [selection.survivors(count, rung) for rung in range(_rungs(count))]
        found = [Interval(every * 2**rung, size) for rung, size in enumerate(sizes) if every * 2**rung < num_iterations]
    if not found:
        raise ConfigError(
            f"select_every = {described['every']}: the training, {num_iterations} iterations of {env_steps} frames, "
            "is too short for a selection"
        )
    left = count if described["kind"] == PBT else selection.survivors(count, len(found))
    return [*found, Interval(num_iterations, left)]


def _rungs(count: int) -> int:
    """Returns how often ``count`` configurations can be halved until one is left."""
    return count.bit_length() - 1


def iterations(intervals: list[Interval], until: int) -> int:
    """Returns the iterations that one agent of each configuration takes until iteration ``until``, in all."""
    total, start = 0, 0
    for end, size in intervals:
        total += size * max(0, min(end, until) - start)
        start = end
    return total


def in_words(described: dict[str, Any], intervals: list[Interval], trainer: Trainer) -> str:
    """Returns a line about when configurations are selected, without what it costs."""
    told = [(f"{trainer.counted(end):,}", size) for end, size in intervals]
    if described["kind"] == PBT:
        worst = max(1, math.floor(selection.FRACTION * intervals[0].configurations))
        at = f"{len(told) - 1} selections, the first after {told[0][0]} frames of each agent"
        return f"{PBT}: {at}; in each the worst {worst} of {told[0][1]} go on from the best"
    parts = [
        f"{size} configurations until {frames} frames" if i == 0 else f"{size} until {frames}"
        for i, (frames, size) in enumerate(told)
    ]
    return f"{HALVING}: {', '.join(parts)}"


def selected_trainer(trainer: Trainer, described: dict[str, Any]) -> Trainer:
    """Makes a trainer like ``trainer`` whose agents can be stopped by a selection that drops some of them."""
    return stopping.stop_at(trainer, None) if described.get("kind") == HALVING else trainer
