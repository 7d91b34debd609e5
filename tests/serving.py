"""The server of the page for tests, on a port of its own, and how to ask it."""

import contextlib
import http.client
import json
import threading
from types import SimpleNamespace
from urllib.parse import urlencode

from purerl.display.dashboard.server import server


@contextlib.contextmanager
def served(answers):
    """The page of these answers on a server of its own."""
    serving = server(answers, 0)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield serving
    serving.shutdown()
    serving.server_close()


def asking(serving):
    """How to ask a server."""
    port = serving.server_address[1]

    def ask(target, method="GET", host=f"127.0.0.1:{port}", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.putrequest(method, target, skip_host=True)
        for name, value in {"Host": host, **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return SimpleNamespace(status=answer.status, headers=answer.headers, body=answer.read())

    def get(place, **parameters):
        return json.loads(ask(f"/api/{place}?{urlencode(parameters)}").body)

    return SimpleNamespace(ask=ask, get=get, address=f"http://127.0.0.1:{port}/", server=serving)
