"""The command ``purerl dashboard``, which only reads."""

import webbrowser
from pathlib import Path

from purerl.cli import parsing
from purerl.errors import ConfigError, printable

FOLDER = "runs"
"""The folder that is shown by default."""


def dashboard(args: list[str]) -> int:
    """Runs ``purerl dashboard [FOLDER]``: serves the page until it is interrupted."""
    from purerl import config as cfg
    from purerl.runs.describing.options import DashboardOptions

    if not args or (args[0].startswith("-") and not {"-h", "--help"} & set(args)):
        args = [FOLDER, *args]
    options = parsing.parse(DashboardOptions, "purerl dashboard", args, positional=True)
    cfg.check(options)

    from purerl.display.dashboard.server import ADDRESS, server
    from purerl.runs.reading import overview

    answers = overview.answers(Path(options.folder))
    try:
        serving = server(answers, options.port)
    except OSError as error:
        raise ConfigError(
            f"port = {options.port}: is not available ({error.strerror}); --port 0 picks a free one"
        ) from None
    with serving:
        address = f"http://{ADDRESS}:{serving.server_address[1]}/"
        print(f"{printable(options.folder)}: {address} (Ctrl-C ends)", flush=True)
        if options.open:
            webbrowser.open(address)
        serving.serve_forever()
    return 0
