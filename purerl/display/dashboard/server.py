"""The server of the page, on the loopback interface alone, which reads files and, if there is one, plays a game.

It refuses requests that another page makes a browser on this machine send: a request must name this very address
(against DNS rebinding), and must not come from another site.
"""

import importlib.resources
import json
import mimetypes
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from purerl.errors import ConfigError
from purerl.store.writing import finite

ADDRESS = "127.0.0.1"
SCRIPTS = "charts.js", "list.js", "run.js", "game.js", "page.js"
ASSETS = {"/": "page.html"} | {f"/{name}": name for name in (*SCRIPTS, "page.css", "icon.svg")}
"""The files of the page, which lie beside this module."""
MOST_FIELDS = 512
"""The largest number of parameters of a request."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
OF_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content policy of the page, which may load what this server gives."""
OF_FILM = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'"
)
"""The content policy of a film in HTML, whose author is unknown: it may show itself, without any access to this
server."""


Reply = tuple[HTTPStatus, str, bytes, str]
"""The status, type, body and content policy of the answer to a request."""


class Missing(Exception):
    """The error of a request for something that does not exist."""


class Answers(NamedTuple):
    """The functions that answer the requests of the page.

    Their arguments are texts of a request, which are untrusted. Those with arguments raise `Missing` or `ConfigError`.

    - ``runs``: the list of runs.
    - ``run``: one run.
    - ``curve``: the curves of a number of some runs, perhaps one for each value of a setting.
    - ``file``: the type and the contents of a file of a run.
    - ``game``: the game on the page (`purerl.runs.reading.playing.OnPage`); None: there is none.
    - ``play``: a move in it, which is posted; None where there is none.
    """

    runs: Callable[[], Any]
    run: Callable[[str], Any]
    curve: Callable[[list[str], str, str], Any]  # (paths, name of a number, name of a setting)
    file: Callable[[str, str], tuple[str, bytes]]  # (path, name of a file) -> (content type, content)
    game: Callable[[], Any] = lambda: None
    play: Callable[[str, str], Any] | None = None  # (place, move)


def server(answers: Answers, port: int) -> ThreadingHTTPServer:
    """Makes a server on a port of the loopback interface.

    Args:
        answers: The functions that answer its requests.
        port: The port (0: any that is free; ``server_address`` of the result has it).

    Raises:
        OSError: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "purerl", ""
        timeout = 30

        def do_GET(self) -> None:
            self._send(*self._answer(_answered))

        do_HEAD = do_GET

        def do_POST(self) -> None:
            self._send(*self._answer(_posted))

        def log_message(self, format: str, *args: Any) -> None:
            """Logs nothing."""

        def _send(self, status: HTTPStatus, kind: str, body: bytes, policy: str) -> None:
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Security-Policy", policy)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _answer(self, answered: Callable[[Answers, str], Reply]) -> Reply:
            if problem := _foreign(self.headers, serving.server_port):
                return _problem(HTTPStatus.FORBIDDEN, problem)
            try:
                return answered(answers, self.path)
            except Missing as error:
                return _problem(HTTPStatus.NOT_FOUND, str(error) or "there is nothing here")
            except (ConfigError, OSError, ValueError) as error:
                return _problem(HTTPStatus.BAD_REQUEST, str(error))

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Reports an error, unless the browser has closed the connection."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    serving = Server((ADDRESS, port), Handler)
    return serving


def _foreign(headers: Any, port: int) -> str:
    """Returns why a request is refused: it names another host, or comes from another site. Empty: it is not refused."""
    hosts = headers.get_all("Host") or []
    if len(hosts) != 1 or hosts[0] not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
        return "this page is served to this machine only"
    own = headers.get("Origin", f"http://{hosts[0]}") == f"http://{hosts[0]}"
    if not own or headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "another site asks"
    return ""


def _answered(answers: Answers, target: str) -> Reply:
    """Returns the reply to a request's target."""
    url = urlsplit(target)
    if url.path in ASSETS:
        name = ASSETS[url.path]
        body = importlib.resources.files(__package__).joinpath(name).read_bytes()
        return HTTPStatus.OK, f"{mimetypes.guess_type(name)[0]}; charset=utf-8", body, OF_PAGE
    asked = parse_qs(url.query, max_num_fields=MOST_FIELDS)
    query = {name: values[-1] for name, values in asked.items()}
    path = query.get("path", "")
    if url.path == "/file":
        kind, body = answers.file(path, query.get("name", ""))
        return HTTPStatus.OK, kind, body, OF_FILM
    answer = {
        "/api/runs": answers.runs,
        "/api/game": answers.game,
        "/api/run": lambda: answers.run(path),
        "/api/curve": lambda: answers.curve(asked.get("path", [""]), query.get("metric", ""), query.get("setting", "")),
    }.get(url.path)
    if answer is None:
        raise Missing
    return _told(answer())


def _posted(answers: Answers, target: str) -> Reply:
    """Returns the reply to a target that is posted: a move in the game, whatever else stands in the request."""
    url = urlsplit(target)
    if answers.play is None or url.path != "/api/game":
        return _problem(HTTPStatus.NOT_IMPLEMENTED, "nothing is posted there")
    asked = parse_qs(url.query, max_num_fields=MOST_FIELDS)
    return _told(answers.play(*(asked.get(name, [""])[-1] for name in ("place", "move"))))


def _told(answer: Any) -> Reply:
    body = json.dumps(finite(answer), allow_nan=False).encode()
    return HTTPStatus.OK, "application/json", body, OF_PAGE


def _problem(status: HTTPStatus, text: str) -> Reply:
    return status, "application/json", json.dumps({"problem": text}).encode(), OF_PAGE
