"""The command ``purerl data``."""

import json

from purerl.cli import limited, parsing
from purerl.display import output


def data(args: list[str]) -> int:
    """Runs ``purerl data FILE|FOLDER|minari:NAME``."""
    from purerl import config as cfg
    from purerl.cli import EXIT_BAD_INPUT
    from purerl.runs.describing.reading_options import DataOptions
    from purerl.store import minari

    options = parsing.parse(DataOptions, "purerl data", args, positional=True)
    cfg.check(options)
    params = options.params
    if minari.is_minari(options.source) and not options.trust:
        limits = options.limit_seconds, options.limit_gigabytes
        return limited.run(["data", *args, "--trust"], options.source, *limits, crashed=EXIT_BAD_INPUT)

    from purerl.display import tables
    from purerl.runs.reading import converted
    from purerl.store.writing import finite

    result = converted.told(options, params)
    if options.json:
        output.show(json.dumps(finite(result), indent=2))
    else:
        tables.print_dataset(options.out or options.source, result)
    return 0
