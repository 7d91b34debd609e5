"""``purerl evolve SOCKET``, ``purerl evolve report`` and ``purerl evolve distill``."""

import json
from pathlib import Path

from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.errors import ConfigError, printable
from purerl.learned import SOCKET_NAMES
from purerl.names import choose

USAGE = f"""usage: purerl evolve SOCKET --env ENV [OPTIONS]

sockets: {", ".join(SOCKET_NAMES)}

purerl evolve SOCKET --help lists the options.
purerl evolve report RUN compares what was found with what it replaces, on held-out seeds.
purerl evolve distill RUN fits a closed form to it."""


def evolve(args: list[str]) -> int:
    """``purerl evolve SOCKET``."""
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    if args[0] in ("report", "distill"):
        return {"report": report, "distill": distill}[args[0]](args[1:])
    socket = choose("socket", args[0], SOCKET_NAMES)
    file, rest = parsing.from_file(args[1:])
    named = [value for flag, value in zip(rest, rest[1:], strict=False) if flag == "--algo"]
    named += [flag.removeprefix("--algo=") for flag in rest if flag.startswith("--algo=")]
    named = named or ([file.take("algo", str, "")] if file else [])
    algo = choose("algo", named[-1], ALGORITHMS) if named else ""
    if file and (file.command != "evolve" or file.take("socket", str, "") != socket):
        raise ConfigError(f"{file.path}: is not of purerl evolve {socket}")

    from purerl.learned import sockets
    from purerl.meta.description import start
    from purerl.runs.describing.options import EvolveOptions

    algos = sockets.algorithms(socket)
    algo = algo or algos[0]
    if socket not in sockets.places(algo):
        raise ConfigError(f"algo = {algo!r}: has no socket {socket}; must be one of {', '.join(algos)}")
    begin = start(file) if file else None
    options = parsing.with_settings(EvolveOptions, socket)
    given = parsing.with_preset(options, algo, f"purerl evolve {socket}", rest, begin)
    if given.options.processes and given.options.dry_run:
        raise ConfigError(f"processes = {given.options.processes!r}: a plan is made by one process")
    with prepared(given.options):
        from purerl.meta import cost, search
        from purerl.meta.description import describe

        params = parsing.env_params(given.options.env_params, given.options.resets)
        usual = parsing.usual(begin, algo)
        description = describe(socket, algo, given.options, given.config, params, usual=usual)
        if not given.options.dry_run:
            return search.search(description, given.options)
        from purerl.display import progress
        from purerl.population import devices, planning

        found = cost.plan(description, devices.chosen(given.options.num_devices))
        print(f"{'frames':<24}{found['frames']:,}")
        print(f"{'frames a generation':<24}{found['frames_per_generation']:,}")
        print(f"{'peak memory':<24}{planning.gigabytes(found['peak_bytes'])}")
        print(f"{'speed':<24}{progress.frames_per_second(found['steps_per_second'])}")
        print(f"{'hours':<24}{found['hours']:.3g}")
    return 0


def report(args: list[str]) -> int:
    """``purerl evolve report RUN``."""
    from purerl import config as cfg
    from purerl.runs.describing.options import ReportOptions

    options = parsing.parse(ReportOptions, "purerl evolve report", args, positional=True)
    cfg.check(options)
    with prepared(options):
        from purerl.display import tables
        from purerl.meta import report
        from purerl.store import trusted
        from purerl.store.json_files import finite

        lanes = options.lanes or None
        seeds = options.seeds, options.tuning_seeds, options.seed
        found = report.report(Path(options.run), options.env, *seeds, lanes, trust=trusted.memory(options.trust))
    if options.json:
        print(json.dumps(finite(found), indent=2))
    else:
        tables.print_report(found)
    return 0


def distill(args: list[str]) -> int:
    """``purerl evolve distill RUN``."""
    from purerl.runs.describing.options import DistillOptions

    options = parsing.parse(DistillOptions, "purerl evolve distill", args, positional=True)

    from purerl.learned import artefacts, expressions
    from purerl.meta import distill
    from purerl.store import trusted

    path = Path(options.out or Path(options.run) / "closed.json")
    trust = trusted.memory(options.trust)
    form = distill.artefact(artefacts.load(options.run), trust=trust, where=Path(options.run))
    try:
        artefacts.save(path, form)
    except OSError as error:
        raise ConfigError(f"out = {str(path)!r}: cannot be written ({error.strerror})") from None
    print(expressions.in_words(form.expression))
    print(f"explains {form.card['explained']:.4f} of what was learned; {printable(str(path))}")
    return 0
