"""The command ``purerl record``."""

import json

from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.display import output


def record(args: list[str]) -> int:
    """Runs ``purerl record POLICY`` or ``purerl record POLICY=SHARE ...``."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import RecordOptions

    options = parsing.parse(RecordOptions, "purerl record", args, positional=True)
    cfg.check(options)
    params = options.params

    from purerl.runs.reading import episodes

    with prepared(options):
        card = episodes.record_run(options, params)
    output.show(json.dumps(card, indent=2) if options.json else episodes.recorded_in_words(options.out, card))
    return 0
