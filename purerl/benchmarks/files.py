"""Files of figures: what ``purerl benchmark`` writes, what it may replace, and two of them beside each other."""

import datetime
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from purerl.benchmarks.measuring import Sizes
from purerl.errors import ConfigError
from purerl.hosts.processes import cores
from purerl.names import shown
from purerl.population.devices import CPU_FACTS, THREADS
from purerl.store import guards
from purerl.version import versions

FORMAT = "purerl benchmark"
VERSION = 1
PACKAGES = "purerl", "jax", "jaxlib"
SIZES = Sizes._fields


def begun(sizes: Sizes) -> dict[str, Any]:
    """Returns a file without figures: the machine, its load, versions and the date."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "processor": processor(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
        **sizes._asdict(),
        "workloads": {},
    }


def processor() -> str:
    """Returns the name of the CPU, as the system tells it."""
    try:
        lines = CPU_FACTS.read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def read(path: Path) -> dict[str, Any]:
    """Reads a file, which is untrusted.

    Raises:
        ConfigError: It is not such a file, or damaged.
    """
    content = guards.read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"{shown(path)}: is not a file of purerl benchmark")
    if content.get("version") != VERSION:
        raise ConfigError(f"{shown(path)}: has version {content.get('version')}, and this purerl reads {VERSION}")
    rows = content.get("workloads")
    if not isinstance(rows, dict) or not all(map(_is_row, rows.values())):
        raise ConfigError(f"{shown(path)}: is damaged: its workloads are no rows of figures")
    return content


def _is_row(row: Any) -> bool:
    """Returns whether a row has what `compared` reads, where it has figures."""
    if not isinstance(row, dict) or not isinstance(row.get("command"), str):
        return False
    if "frames_per_second" not in row:
        return True
    speed, parts = row["frames_per_second"], [row.get(name) for name in ("settings", "device", "versions", "flags")]
    numbers = [guards.number(guards.mapping(speed).get(name)) for name in ("median", "low", "high")]
    return all(x is not None and x > 0 for x in numbers) and all(isinstance(each, dict) for each in parts)


def check_replaced(path: Path) -> None:
    """Raises `ConfigError` if there is something at ``path`` that is not such a file."""
    if not path.exists():
        return
    try:
        read(path)
    except ConfigError as error:
        raise ConfigError(f"out = {shown(path)!r}: is not replaced ({error})") from None


def compared(first: dict[str, Any], second: dict[str, Any], names: tuple[str, str]) -> tuple[list[dict], list[str]]:
    """Compares two files: the rows of the workloads that both have, and lines about what differs beside the speed.

    A ratio is how many times as many frames/s the second makes: that of the medians, the lowest of the second over the
    highest of the first, and the highest over the lowest.

    Args:
        first: The content of a file.
        second: The content of another one.
        names: What they are called in lines.

    Raises:
        ConfigError: They have no workload in common, or one has other settings in the second.
    """
    has = lambda file: {name: row for name, row in file["workloads"].items() if "frames_per_second" in row}
    sides = [has(first), has(second)]
    common = [name for name in sides[0] if name in sides[1]]
    if not common:
        raise ConfigError(f"compare: {names[0]} and {names[1]} have no measured workload in common")
    for name in common:
        if differs := other_settings(*(side[name] for side in sides)):
            raise ConfigError(f"compare: {name} has other settings in {names[1]}: {differs}")
    rows = []
    for name in common:
        one, two = (side[name]["frames_per_second"] for side in sides)
        ratio = {
            "median": two["median"] / one["median"],
            "low": two["low"] / one["high"],
            "high": two["high"] / one["low"],
        }
        rows.append({"workload": name, "first": one, "second": two, "ratio": ratio})
    lines = list(_differences(first, second, [(name, *(side[name] for side in sides)) for name in common]))
    for name, mine, others in ((names[0], *sides), (names[1], *reversed(sides))):
        if alone := [each for each in mine if each not in others]:
            lines.append(f"only in {name}: {', '.join(alone)}")
    for name, side in zip(names, sides, strict=True):
        if fewer := [each for each in common if "failed" in side[each]]:
            lines.append(f"fewer processes in {name}, because one failed: {', '.join(fewer)}")
    return rows, lines


def other_settings(one: dict[str, Any], two: dict[str, Any]) -> str:
    """Returns in words how the settings of two rows differ; empty if they do not.

    Settings that only one of them has are of another version of purerl, and do not count.
    """
    if one["command"] != two["command"]:
        return f"{two['command']!r}, not {one['command']!r}"
    for name, value in one["settings"].items():
        if name in two["settings"] and two["settings"][name] != value:
            return f"{name} = {two['settings'][name]!r}, not {value!r}"
    return ""


def _differences(first: dict[str, Any], second: dict[str, Any], rows: list[Any]) -> Iterator[str]:
    """Yields lines about machines, versions and how often it was measured, where two files differ."""
    for name in ("processor", "cores", *SIZES):
        if first.get(name) != second.get(name):
            yield f"{name}: {first.get(name)}, then {second.get(name)}"
    if 1 in (first.get("processes"), second.get("processes")):
        yield "a single process has no range, so a ratio may be chance; --processes 3 and more tell"
    told = set()
    for name, one, two in rows:
        if one.get("threads") != two.get("threads"):
            yield f"{name}, threads: {one.get('threads')}, then {two.get('threads')}"
        for part in ("device", "versions", "flags"):
            for key in sorted({*one[part], *two[part]} - {THREADS}):
                before, after = (row[part].get(key, "not set") for row in (one, two))
                line = f"{part}, {key}: {before}, then {after}"
                if before != after and line not in told:
                    told.add(line)
                    yield line
