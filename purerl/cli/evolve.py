"""The commands ``purerl evolve SOCKET``, ``purerl evolve report`` and ``purerl evolve distill``."""

import json
from pathlib import Path
from typing import Any

from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.display import output
from purerl.errors import ConfigError, printable
from purerl.learned import SOCKET_NAMES
from purerl.names import choose

USAGE = f"""usage: purerl evolve SOCKET --env ENV [OPTIONS]

sockets: {", ".join(SOCKET_NAMES)},
    or MODULE:NAME for your own, a purerl.learned.sockets.Socket or a function that returns one

commands:
  evolve SOCKET                  search for a function
  evolve report RUN              compare the learned function with its baselines, on held-out seeds
  evolve report MODULE:FUNCTION  compare a function of your own in the same way; needs --socket and --env
  evolve distill RUN             fit a closed form or a small network to the learned function

purerl evolve SOCKET --help lists the options."""


def evolve(args: list[str]) -> int:
    """Runs ``purerl evolve``, with a socket, ``report`` or ``distill``, and returns its exit code."""
    if not args or args[0] in ("-h", "--help"):
        print(output.flowing(USAGE))
        return 0 if args else 2
    if args[0] in ("report", "distill"):
        return {"report": report, "distill": distill}[args[0]](args[1:])
    socket = _socket(args[0])
    file, rest = parsing.from_file(args[1:])
    named = parsing.extract_flag("--algo", rest)[1] or ([file.take("algo", str, "")] if file else [])
    algo = choose("algo", named[-1], ALGORITHMS) if named else ""
    if file and (file.command != "evolve" or file.take("socket", str, "") != socket):
        raise ConfigError(f"{file.path}: is not a config file of purerl evolve {socket}")

    from purerl.meta.description import start
    from purerl.runs.describing.options import EvolveOptions

    algo = fitting(socket, algo)
    begin = start(file) if file else None
    options = parsing.with_settings(EvolveOptions, socket)
    given = parsing.with_preset(options, algo, f"purerl evolve {socket}", rest, begin)
    if given.options.processes and given.options.dry_run:
        raise ConfigError(f"processes = {given.options.processes!r}: a plan needs a single process; omit --processes")
    with prepared(given.options):
        from purerl.meta import cost, search
        from purerl.meta.description import describe
        from purerl.runs.describing.config_file import FRESH

        description = describe(socket, algo, given.options, given.config, begin or FRESH)
        if not given.options.dry_run:
            return search.search(description, given.options)
        from purerl.display import progress
        from purerl.population import devices, planning

        plan = cost.plan(description, devices.chosen(given.options.num_devices))
        quantities = {
            "frames": f"{plan['frames']:,}",
            "frames a generation": f"{plan['frames_per_generation']:,}",
            "peak memory": planning.gigabytes(plan["peak_bytes"]),
            "speed": progress.frames_per_second(plan["steps_per_second"]),
            "whole search": f"about {progress.duration(plan['wall_seconds'])}",
        }
        output.show(planning.lines(quantities))
    return 0


def _socket(name: str) -> str:
    """Returns the name of a socket, which may be MODULE:NAME of a user's own. Raises `ConfigError` for another word."""
    return name if ":" in name else choose("socket", name, SOCKET_NAMES)


def fitting(socket: str, algo: str) -> str:
    """Checks that an algorithm has a socket, and returns its name.

    Args:
        socket: The name of the socket.
        algo: The name of the algorithm (empty: the one that searches use by default).

    Raises:
        ConfigError: The algorithm does not have the socket; the line names those that have it.
    """
    from purerl.learned import sockets

    algos = sockets.algorithms(socket)
    algo = algo or algos[0]
    if not sockets.fits(socket, algo):
        raise ConfigError(f"algo = {algo!r}: has no socket {socket}; must be one of {', '.join(algos)}")
    return algo


def report(args: list[str]) -> int:
    """Runs ``purerl evolve report``, of a run or of a function that a user wrote."""
    named = parsing.extract_flag("--socket", args)[1]
    if named:
        return report_written(choose("socket", named[-1], SOCKET_NAMES), args)
    if args and ":" in args[0] and not Path(args[0]).exists():
        raise ConfigError(f"run = {args[0]!r}: does not exist; for a function of your own add --socket SOCKET")

    from purerl import config as cfg
    from purerl.runs.describing.options import ReportOptions

    options = parsing.parse(ReportOptions, "purerl evolve report", args, positional=True)
    cfg.check(options)
    with prepared(options):
        from purerl.meta import report
        from purerl.store import trusted_modules

        lanes = options.lanes or None
        seeds = options.seeds, options.tuning_seeds, options.seed
        results = report.report(
            Path(options.run), options.env, *seeds, lanes, trust=trusted_modules.memory(options.trust)
        )
    return print_report(results, options.json)


def print_report(results: dict[str, Any], as_json: bool) -> int:
    """Prints a report and returns the exit code.

    Args:
        results: The report.
        as_json: Whether to print JSON instead of tables.

    Returns:
        `run.EXIT_DIVERGED` if no training with the reported function has a fitness, else 0.
    """
    from purerl.display import tables
    from purerl.runs.running.run import EXIT_DIVERGED
    from purerl.store.writing import finite

    if as_json:
        output.show(json.dumps(finite(results), indent=2))
    else:
        tables.print_report(results)
    return EXIT_DIVERGED if all(row["without"] == results["seeds"] for row in results["rows"]) else 0


def report_written(socket: str, args: list[str]) -> int:
    """Runs ``purerl evolve report MODULE:FUNCTION --socket SOCKET``, in another process if there are limits."""
    from purerl import config as cfg
    from purerl.learned import written
    from purerl.runs.describing.options import WrittenOptions

    name = args[0]
    if ":" not in name:
        raise ConfigError(f"function = {name!r}: must be MODULE:FUNCTION, before all options")
    written.check_socket(socket)
    named = parsing.extract_flag("--algo", args)[1]
    algo = fitting(socket, choose("algo", named[-1], ALGORITHMS) if named else "")
    given = parsing.with_preset(WrittenOptions, algo, f"purerl evolve report {name}", args[1:])
    options, config = given.options, given.config
    no_env = [] if options.env else ["env = (): must be one or more environments"]
    cfg.check(options, *no_env, *cfg.problems(config))
    if options.limit_seconds or options.limit_gigabytes:
        from purerl.cli import limited

        limits = "--limit-seconds=0", "--limit-gigabytes=0"
        command = ["evolve", "report", *args, *limits]
        return limited.run(command, name, options.limit_seconds, options.limit_gigabytes)
    with prepared(options):
        from purerl.meta import written_report

        results = written_report.report(name, socket, algo, options, config)
    return print_report(results, options.json)


def distill(args: list[str]) -> int:
    """Runs ``purerl evolve distill RUN``."""
    from purerl import config as cfg
    from purerl.runs.describing.options import DistillOptions

    options = parsing.parse(DistillOptions, "purerl evolve distill", args, positional=True)
    plain, of_network = DistillOptions(options.run), options.into == "network"
    idle = [name for name in ("hidden_sizes", "seed") if getattr(options, name) != getattr(plain, name)]
    cfg.check(options, *[f"{name}: has no effect without --into network" for name in idle if not of_network])

    from purerl.learned import artefacts, expressions
    from purerl.meta import distill, distill_network
    from purerl.store import trusted_modules

    run = Path(options.run)
    folder = run if run.is_dir() else run.parent
    path = Path(options.out or folder / ("network.json" if of_network else "closed.json"))
    trust = trusted_modules.memory(options.trust)
    learned = artefacts.load(run, trust)
    if of_network:
        form = distill_network.artefact(learned, options.hidden_sizes, options.seed, trust=trust, where=run)
        output.show(f"explains {form.card['explained_change']:.4f} of what it changes in the algorithm's own function")
    else:
        form = distill.artefact(learned, trust=trust, where=run)
        output.show(expressions.in_words(form.expression))
    try:
        artefacts.save(path, form)
    except OSError as error:
        raise ConfigError(f"out = {str(path)!r}: cannot be written ({error.strerror})") from None
    output.show(f"explains {form.card['explained']:.4f} of what was learned; {printable(str(path))}")
    return 0
