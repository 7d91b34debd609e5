"""The command ``purerl export``."""

from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.display import output
from purerl.errors import printable
from purerl.names import shown


def export(args: list[str]) -> int:
    """Runs ``purerl export RUN --to stablehlo|numpy|onnx``."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import ExportOptions

    options = parsing.parse(ExportOptions, "purerl export", args, positional=True)
    cfg.check(options)

    from purerl.exports import exporting

    with prepared(options):
        path = exporting.export_run(options)
    output.show(printable(shown(path)))
    return 0
