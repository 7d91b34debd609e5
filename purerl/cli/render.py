"""The command ``purerl render``."""

from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.errors import printable
from purerl.hosts import copies


def render(args: list[str]) -> int:
    """Runs ``purerl render RUN --out FILE``."""
    from purerl import config as cfg
    from purerl.runs.describing.options import RenderOptions

    options = parsing.parse(RenderOptions, "purerl render", args, positional=True)
    cfg.check(options)

    from purerl.runs.reading import rendering

    with prepared(options), copies.planned(pictures=True):
        path, frames, returns = rendering.render(options)
    text = ", ".join(f"{each:.5g}" for each in returns)
    print(f"{printable(str(path))}: {frames} frames, return {text}")
    return 0
