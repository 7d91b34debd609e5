"""The command ``purerl play``."""

from pathlib import Path

from purerl.cli import parsing
from purerl.cli.dashboard import serve
from purerl.cli.machine import prepared
from purerl.errors import ConfigError


def play(args: list[str]) -> int:
    """Runs ``purerl play RUN``."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import PlayOptions

    options = parsing.parse(PlayOptions, "purerl play", args, positional=True)
    cfg.check(options)
    for name in ("port", "open"):
        if not options.page and getattr(options, name) != getattr(PlayOptions, name):
            raise ConfigError(f"{name} = {getattr(options, name)}: has no effect without page")
    params = options.params

    from purerl.runs.reading import games, overview, playing

    with prepared(options):
        played = games.of_run(options, params)
        if not options.page:
            playing.at_terminal(played)
            return 0
        page = playing.OnPage(played)
        answers = overview.answers(Path(options.run))._replace(game=page.game, play=page.play)
        serve(answers, options.port, options.open, f"{played.agent.saved['env']}: ", "#/play", page.begin)
    return 0
