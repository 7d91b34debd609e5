"""The command ``purerl benchmark``, whose own process computes nothing: a GPU is left to those that it starts."""

import json
import shlex
import sys
from typing import Any

from purerl import catalogue, interrupts
from purerl.cli import EXIT_BAD_INPUT, EXIT_OUT_OF_MEMORY, EXIT_OWN_CODE, benchmark_worker, parsing
from purerl.display import output
from purerl.errors import ConfigError, printable
from purerl.names import choose, here

FULL, QUICK = (3, 3, 2), (1, 1, 1)
"""Processes, rounds and warm-ups by default."""


def benchmark(args: list[str]) -> int:
    """Runs ``purerl benchmark [WORKLOAD ...]``.

    Returns:
        The exit code: 0, or that of the first workload of which a process failed. What was measured is written.
    """
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import BenchmarkOptions

    options = parsing.parse(BenchmarkOptions, "purerl benchmark", args, positional=True)
    cfg.check(options, *cfg.unused([options], BenchmarkOptions(())))
    if options.compare:
        return _compare(options)

    from purerl.benchmarks import files, measuring, turns
    from purerl.display import tables
    from purerl.runs.describing.run_directory import check_out
    from purerl.store.writing import finite, write_json

    chosen = choice(options.workloads, options.quick)
    path = here(options.out)
    check_out(path, overwrite=options.overwrite)
    files.check_replaced(path)
    given = options.processes, options.rounds, options.warmups
    usual = QUICK if options.quick else FULL
    sizes = measuring.Sizes(*(each or default for each, default in zip(given, usual, strict=True)))
    content = files.begun(sizes)
    codes: list[int] = []

    def note(measured: measuring.Measured, told: list[dict[str, Any]], failed: turns.Failed | None) -> None:
        row, name = {**measured.facts, **measuring.figures(told)}, measured.workload.name
        if failed:
            last = failed.lines[-1] if failed.lines else ""
            row["failed"] = {"process": len(told) + 1, "code": failed.code, "line": last}
            codes.append(failed.code)
        content["workloads"][name] = row
        write_json(path, content)
        speed = f"{row['frames_per_second']['median']:,.0f} frames/s" if told else ""
        said = str(failed) if failed else f"{name}: process {len(told)} of {sizes.processes}: {speed} so far"
        print(printable(said), file=sys.stderr, flush=True)

    with interrupts.cleaning(turns.close_all):
        measuring.measure(chosen, sizes, benchmark_worker.MODULE, note)
    if options.json:
        output.show(json.dumps(finite(content), indent=2))
    else:
        tables.print_speeds(content)
    return exit_code(codes)


def exit_code(codes: list[int]) -> int:
    """Returns the exit code of the command, from those of the processes that failed."""
    told = EXIT_BAD_INPUT, EXIT_OUT_OF_MEMORY
    return (codes[0] if codes[0] in told else EXIT_OWN_CODE) if codes else 0


def choice(names: tuple[str, ...], quick: bool) -> list[Any]:
    """Returns what is measured, as `measuring.Measured`; a line tells each workload whose library is not installed.

    Args:
        names: Names of workloads, or what follows ``purerl train`` (empty: all names).
        quick: Whether named workloads are at the quick scale.

    Raises:
        ConfigError: There is no such workload, its words are wrong, or nothing is left to measure.
    """
    from purerl.benchmarks.measuring import Measured
    from purerl.benchmarks.named import CHOICES, NAMED, Workload

    workloads: dict[str, Workload] = {}
    for name in names or NAMED:
        own = " " in name.strip()
        several = [Workload(name, name)] if own else [x.at(quick) for x in CHOICES[choose("workload", name, CHOICES)]]
        workloads |= {each.name: each for each in several}
    chosen, left_out = [], list[str]()
    for name, workload in workloads.items():
        words = _split(workload.words)
        given = benchmark_worker.read(words)
        family = given.options.env.partition("/")[0]
        if not catalogue.is_installed(family):
            left_out.append(f"workload = {name!r}: {family} is not installed; pip install 'purerl[{family}]'")
            continue
        settings = {**vars(given.config), "env_params": given.options.params}
        facts = {"command": f"purerl train {shlex.join(words)}", "agents": given.options.num_seeds}
        chosen.append(Measured(workload, {**facts, "settings": settings}, words))
    if not chosen:
        raise ConfigError("\n".join(left_out))
    for line in left_out:
        print(f"{line}; left out", file=sys.stderr)
    return chosen


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise ConfigError(f"workload = {words!r}: {error}") from None


def _compare(options: Any) -> int:
    """Runs ``purerl benchmark --compare BEFORE.json AFTER.json``, which writes nothing."""
    from purerl.benchmarks import files
    from purerl.display import tables

    if options.workloads or len(options.compare) != 2:
        raise ConfigError("compare: needs two files, and no workloads")
    first, second = (files.read(here(path)) for path in options.compare)
    rows, lines = files.compared(first, second, options.compare)
    if options.json:
        output.show(json.dumps({"workloads": rows, "told": lines}, indent=2))
    else:
        tables.print_speeds_compared(rows, lines)
    return 0
