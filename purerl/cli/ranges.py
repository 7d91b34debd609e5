"""Ranges of numbers as a user writes them, and the configurations that they span."""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from purerl.catalogue import TEXTS
from purerl.config import CONFIGURATIONS
from purerl.errors import ConfigError

FORMS = "LOW:HIGH:lin|log:COUNT, LOW:HIGH:lin|log, or VALUE,VALUE,..."


def extract(args: Sequence[str], fields: Sequence[str], prefix: str) -> tuple[list[str], dict[str, str]]:
    """Takes the ranges out of command-line arguments.

    A range is a value with a colon or a comma: of one of ``fields`` (``--learning-rate 1e-4:1e-2:log:8``), or of a
    NAME=RANGE, where it begins with a number. Values of `TEXTS` are no ranges. If a field is given twice the last value
    counts, as it does for any flag.

    Returns:
        The other arguments, and the ranges by name, with ``prefix`` before the NAME of a NAME=RANGE.

    Raises:
        ConfigError: A NAME has two ranges.
    """
    rest: list[str] = []
    ranges: dict[str, str] = {}
    waiting = None
    for arg in args:
        option, equals, value = arg.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if waiting and re.search("[:,]", arg):
            ranges[waiting] = arg
            rest.pop()
            waiting = None
        elif option.startswith("--"):
            waiting = name if name in fields else None
            ranges.pop(name, None)
            if waiting and re.search("[:,]", value):
                ranges[waiting] = value
            else:
                rest.append(arg)
        elif equals and option.isidentifier() and option not in TEXTS and _begins_with_a_number(value):
            if prefix + option in ranges:
                raise ConfigError(f"env_params = {arg!r}: {option} is given twice")
            ranges[prefix + option] = value
        else:
            rest.append(arg)
            waiting = None
    return rest, ranges


def _begins_with_a_number(value: str) -> bool:
    """Returns whether a value with a colon or a comma begins with a number or with nothing; the others are text."""
    first, *rest = re.split("[:,]", value)
    try:
        return bool(rest) and (not first or math.isfinite(float(first)))
    except ValueError:
        return False


def lists(args: Sequence[str], fields: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Takes the lists VALUE,VALUE,... of ``fields`` out of command-line arguments.

    If a field is given twice the last value counts.

    Returns:
        The other arguments, and the values of each list by the field's name.
    """
    rest: list[str] = []
    columns: dict[str, list[str]] = {}
    waiting = None
    for arg in args:
        option, _, value = arg.partition("=")
        if waiting and "," in arg and not arg.startswith("--"):
            columns[waiting] = arg.split(",")
            rest.pop()
        elif option.startswith("--") and (name := option[2:].replace("-", "_")) in fields:
            columns.pop(name, None)
            if "," in value:
                columns[name] = value.split(",")
            else:
                rest.append(arg)
                waiting = None if value else name
                continue
        else:
            rest.append(arg)
        waiting = None
    return rest, columns


def flags(name: str, value: str) -> list[str]:
    """Returns the arguments that set a field to one value of a list, such as ``64 64`` of ``"64 64,128 128"``."""
    flag = name.replace("_", "-")
    if value in ("true", "false"):
        return [f"--{flag}" if value == "true" else f"--no-{flag}"]
    return [f"--{flag}", *value.split()]


def configurations(ranges: dict[str, str], num_samples: int, seed: int) -> dict[str, list[float]]:
    """Lists all configurations that ranges span.

    Ranges with a count, and lists, span a grid. Ranges without a count are sampled together ``num_samples`` times,
    uniformly on their scale, and each sample is combined with every point of the grid. ``ranges`` are texts by name.

    Returns:
        The values ``[configurations]`` of each name.

    Raises:
        ConfigError: Ranges are wrong (with all problems at once), or they span more than `CONFIGURATIONS`, which is
            checked before any is made.
    """
    problems: list[str] = []
    grid: dict[str, tuple] = {}
    random: dict[str, tuple] = {}
    for name, text in ranges.items():
        try:
            values = _read(text)
            if len(text.split(":")) == 3:
                random[name] = values
                continue
            grid[name] = values
            with np.errstate(over="ignore"):
                different = len(np.unique(np.asarray(values, np.float32)))
            if different < len(values):
                problems.append(f"{name.rpartition('.')[2]} = {text!r}: contains a value twice in float32")
        except ValueError:
            limits = f"with LOW < HIGH, above 0 if log, and COUNT from 2 to {CONFIGURATIONS}"
            problems.append(f"{name.rpartition('.')[2]} = {text!r}: must be {FORMS}, {limits}")
    if problems:
        raise ConfigError("\n".join(problems))
    counts = {name: len(values) for name, values in grid.items()} | ({"num_samples": num_samples} if random else {})
    if math.prod(counts.values()) > CONFIGURATIONS:
        each = " * ".join(f"{count} ({name.rpartition('.')[2]})" for name, count in counts.items())
        raise ConfigError(f"{each} configurations: must be at most {CONFIGURATIONS}")
    rng = np.random.default_rng(seed)
    draws = np.stack([_at(span, rng.random(num_samples)) for span in random.values()], axis=1) if random else [()]
    rows = [(*cell, *draw) for cell in itertools.product(*grid.values()) for draw in draws]
    return {name: [float(row[i]) for row in rows] for i, name in enumerate([*grid, *random])}


def unused(ranges: dict[str, str], options: Any) -> list[str]:
    """Returns one line if ``options`` set the number of random samples although no range is random, else none."""
    drawn = any(text.count(":") == 2 for text in ranges.values())
    if drawn or not ranges or options.num_samples == type(options).num_samples:
        return []
    return [f"num_samples = {options.num_samples}: has no effect without a range LOW:HIGH:lin|log without a count"]


def _read(text: str) -> tuple:
    """Returns the values of a list or a grid, or (low, high, scale) of a range without a count. Raises `ValueError`."""
    if ":" not in text:
        return tuple(_number(value) for value in text.split(","))
    low, high, scale, *count = text.split(":")
    span = _number(low), _number(high), scale
    if span[0] >= span[1] or scale not in ("lin", "log") or (scale == "log" and span[0] <= 0) or len(count) > 1:
        raise ValueError
    if not count:
        return span
    if not 2 <= int(count[0]) <= CONFIGURATIONS:
        raise ValueError
    return tuple(_at(span, np.linspace(0, 1, int(count[0]))))


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _at(span: tuple[float, float, str], fraction: np.ndarray) -> np.ndarray:
    """Returns the numbers at fractions of a linear or logarithmic range, whose ends are exact."""
    low, high, scale = span
    between = low + fraction * (high - low) if scale == "lin" else low * (high / low) ** fraction
    return np.clip(between, low, high)
