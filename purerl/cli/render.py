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
    from purerl.runs.describing.reading_options import RenderOptions

    options = parsing.parse(RenderOptions, "purerl render", args, positional=True)
    cfg.check(options)
    params = options.params

    from purerl.runs.reading import episodes

    with prepared(options), copies.planned(pictures=True):
        path, frames, told = episodes.render(options, params)
    output.show(f"{printable(shown(path))}: {frames} frames, {told}")
    return 0
