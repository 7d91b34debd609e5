"""The command ``purerl play``."""

from purerl.cli import parsing
from purerl.cli.machine import prepared


def play(args: list[str]) -> int:
    """Runs ``purerl play RUN``."""
    from purerl import config as cfg
    from purerl.runs.describing.options import PlayOptions

    options = parsing.parse(PlayOptions, "purerl play", args, positional=True)
    cfg.check(options)
    params = options.params

    from purerl.runs.reading import games

    with prepared(options):
        games.play(options, params)
    return 0
