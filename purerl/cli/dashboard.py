"""The command ``purerl dashboard``, which only reads, and the page of a game."""

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from purerl.cli import parsing
from purerl.display import output
from purerl.errors import ConfigError, printable

if TYPE_CHECKING:
    from purerl.display.dashboard.server import Answers

FOLDER = "runs"
"""The folder that is shown by default."""


def dashboard(args: list[str]) -> int:
    """Runs ``purerl dashboard [FOLDER]``: serves the page until it is interrupted."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import DashboardOptions

    if not args or (args[0].startswith("-") and not {"-h", "--help"} & set(args)):
        args = [FOLDER, *args]
    options = parsing.parse(DashboardOptions, "purerl dashboard", args, positional=True)
    cfg.check(options)

    from purerl.runs.reading import overview

    serve(overview.answers(Path(options.folder)), options.port, options.open, f"{printable(options.folder)}: ")
    return 0


def serve(
    answers: "Answers", port: int, opens: bool, words: str, place: str = "", ready: Callable[[], None] | None = None
) -> None:
    """Serves the page until the command is interrupted, and prints its address after ``words``.

    Args:
        answers: The functions that answer its requests.
        port: The port; 0: any that is free.
        opens: Whether to open it in a browser.
        words: What is printed before the address.
        place: Where on the page one begins, such as ``#/play``.
        ready: Makes the answers ready, once the port is known to be free.

    Raises:
        ConfigError: The port is taken.
    """
    from purerl.display.dashboard.server import ADDRESS, server

    try:
        serving = server(answers, port)
    except OSError as error:
        raise ConfigError(f"port = {port}: is not available ({error.strerror}); --port 0 picks a free one") from None
    with serving:
        if ready:
            ready()
        address = f"http://{ADDRESS}:{serving.server_address[1]}/{place}"
        print(f"{words}{address} (Ctrl-C ends)", file=output.results(), flush=True)
        if opens:
            webbrowser.open(address)
        serving.serve_forever()
