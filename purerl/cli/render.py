"""The command ``purerl render``."""

from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.display import output
from purerl.errors import printable
from purerl.hosts import copies
from purerl.names import shown


def render(args: list[str]) -> int:
    """Runs ``purerl render RUN --out FILE``."""
    from purerl import config as cfg
    from purerl.runs.describing.options import RenderOptions

    options = parsing.parse(RenderOptions, "purerl render", args, positional=True)
    cfg.check(options)
    params = options.params

    from purerl.runs.reading import episodes, filmed

    with prepared(options), copies.planned(pictures=True):
        path, frames, played = episodes.render(options, params)
    text = filmed.in_words([episode.returns for episode in played])
    sampled = "sampled, " if options.sample else ""
    output.show(f"{printable(shown(path))}: {frames} frames, {sampled}{text}")
    return 0
