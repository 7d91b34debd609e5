"""Measures workloads in fresh processes, one at a time, and makes rows of figures of what the processes tell."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from purerl.benchmarks import turns
from purerl.benchmarks.named import Workload
from purerl.population.devices import THREADS

Told = dict[str, list[dict[str, Any]]]
"""What the processes of each workload have told, by its name, as `turns.measure_once` returns it."""


class Sizes(NamedTuple):
    """How often a workload runs: in so many fresh ``processes``, each with ``warmups`` and then timed ``rounds``."""

    processes: int
    rounds: int
    warmups: int


class Measured(NamedTuple):
    """A workload with its ``facts``, that is settings that its row begins with, and the words of its process."""

    workload: Workload
    facts: dict[str, Any]
    words: list[str]


def measure(
    chosen: Sequence[Measured],
    sizes: Sizes,
    module: str,
    note: Callable[[Measured, list[dict[str, Any]], turns.Failed | None], None],
) -> None:
    """Measures workloads, a process of each and then the next of each, in an order that turns round in between.

    So a slow minute of the machine does not meet one workload alone. A workload of which a process fails is not
    measured any further.

    Args:
        chosen: The workloads.
        sizes: How often each runs.
        module: The module whose program serves the process of a workload.
        note: ``note(workload, told, failed)`` is called after each process, with what the processes of the workload
            have told so far and, if the last one failed, why.
    """
    told: Told = {each.workload.name: [] for each in chosen}
    command, failed = [sys.executable, "-P", "-m", module], set()
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    for number in range(sizes.processes):
        for each in chosen if number % 2 == 0 else reversed(chosen):
            name = each.workload.name
            if name in failed:
                continue
            request = {"options": each.words, "warmups": sizes.warmups}
            side = turns.Side(name, command, request, {"PYTHONPATH": path})
            try:
                told[name].append(turns.measure_once([side], sizes.rounds, number)[name])
            except turns.Failed as error:
                failed.add(name)
                note(each, told[name], error)
            else:
                note(each, told[name], None)


def figures(processes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the figures of a workload, of what its processes have told (none: there are no figures).

    Frames/s are the median over processes, with the lowest and the highest; of a process the median over rounds.
    """
    if not processes:
        return {}
    results, first = list(processes), processes[0]
    if "compile_seconds" not in first:  # a process of its own compiles in each round
        results = [{**each, "compile_seconds": each["rounds"][0]["compile_seconds"]} for each in results]
    facts = {**first["rounds"][0], **first}
    machine = facts["machine"]
    threads = machine["flags"].get(THREADS, "")
    told = turns.figures(results)
    names = "seconds", "compile_seconds", "peak_mib", "cores", "return", "return_error"
    return {
        "frames": first["frames"],
        "frames_per_second": turns.rate(results, first["frames"]),
        "each_frames_per_second": [first["frames"] / seconds for seconds in turns.seconds(results)],
        **{name: told[name] for name in names if name in told},
        "compile_cached": facts["compile_cached"],
        "peak_of": facts["peak_of"],
        "threads": int(threads) if threads.isdigit() else machine["device"]["cores"],
        "device": machine["device"],
        "versions": machine["versions"],
        "flags": machine["flags"],
    }
