"""Messages between the first process of a run and each of the others, and a watch over whether they are still there.

The first process has a connection to each of the others, over which lines of JSON go. A process that dies closes its
connections, which the others learn at once, wherever they are, also while they compile. A process whose machine is gone
stops answering.
"""

import contextlib
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

EXIT_LOST = 5
"""The exit code of a process after another process has died."""
GRACE = 2.0
"""Seconds that a process has to end by itself after another one has ended with an error.

All processes find the same mistakes.
"""
NEWS_SECONDS = 5.0
"""Seconds after the death of a process during which another one may see only the consequences."""
PATIENCE = 60.0
"""Seconds in which the others must connect to the first process."""
PROBES = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 8000}
"""How soon a connection to a machine that is gone is given up, in seconds; the last one is in milliseconds."""

Ended = Callable[[str, int], None]
"""``ended(words, code)`` ends this process with an exit code, by `leave`; ``words`` say why."""
_open: list["Channel"] = []
"""The channel of this process, if there are other processes: at most one."""


class Address(NamedTuple):
    """Where the first process listens.

    ``hosts`` are names of its machine, any of which may be the one that the others know. A process that connects must
    send ``secret``.
    """

    hosts: Sequence[str]
    port: int
    secret: str


class Channel:
    """The connections of the process ``index`` of ``count`` to the first one, or from there to all others."""

    def __init__(self, index: int, count: int, peers: dict[int, socket.socket], ended: Ended):
        self._index, self._count, self._peers, self._ended = index, count, peers, ended
        self._inbox: dict[int, queue.SimpleQueue] = {peer: queue.SimpleQueue() for peer in peers}
        self._ending, self._gone = threading.RLock(), {peer: threading.Event() for peer in peers}
        self._awaited = False
        for peer, connection in peers.items():
            _watched(connection)
            threading.Thread(target=self._listen, args=(peer, connection), name="channel", daemon=True).start()

    def gathered(self, value: Any) -> list[Any]:
        """Returns the values of all processes in the order of the processes; ``value`` is the one of this process.

        All processes must call it, and wait for one another. ``value`` is JSON; numbers keep their bits, tuples become
        lists.
        """
        if self._index:
            self._send(0, {"value": value})
            everything: list[Any] = self._inbox[0].get()
            return everything
        values = [json.loads(json.dumps(value)), *(self._inbox[peer].get() for peer in range(1, self._count))]
        for peer in self._peers:
            self._send(peer, {"value": values})
        return values

    def close(self, code: int) -> None:
        """Tells the others that this process ends with an exit code.

        If the code is not 0 the others end with it, too, and before the first process does, without which JAX aborts
        them.
        """
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()  # another thread exits the process
        for peer, connection in self._peers.items():
            self._send(peer, {"code": code})
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        if code and self._index == 0:
            over = time.monotonic() + 2 * GRACE
            for closed in self._gone.values():
                closed.wait(max(0.0, over - time.monotonic()))

    def await_news(self) -> None:
        """Waits so long that the death of another process would have ended this one; only the first call waits."""
        if not self._awaited:
            self._awaited = True
            time.sleep(NEWS_SECONDS)

    def _send(self, peer: int, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # `_listen` reports a closed connection
            self._peers[peer].sendall(json.dumps(message).encode() + b"\n")

    def _listen(self, peer: int, connection: socket.socket) -> None:
        """Receives what another process sends until that has ended, and ends this process unless the code was 0."""
        code, words = EXIT_LOST, f"process {peer} of {self._count} has died"
        with contextlib.suppress(OSError, ValueError), connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if "code" in message:
                    code = message["code"]
                    words = f"process {peer} of {self._count} has ended with exit code {code}"
                    break
                self._inbox[peer].put(message["value"])
        self._gone[peer].set()
        if code == 0:
            return
        if code != EXIT_LOST:
            time.sleep(GRACE)
        if self._ending.acquire(blocking=False):
            self._ended(words, code)


def begin(channel: Channel) -> None:
    """Makes ``channel`` the channel of this process."""
    _open.append(channel)


def end() -> None:
    """Leaves this process without a channel."""
    _open.clear()


def current() -> Channel | None:
    """Returns the channel of this process; None: it has none."""
    return _open[-1] if _open else None


def await_news() -> None:
    """Waits after a failure that may come of another process's death; if it does, the channel ends this process.

    Only the first call waits.
    """
    if open_channel := current():
        open_channel.await_news()


def leave(code: int) -> None:
    """Ends this process at once, and the others with it; does nothing if there are no others.

    The interpreter's own end would have JAX wait for the others.
    """
    if channel := current():
        channel.close(code)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def listen(hosts: Sequence[str], bind: str = "") -> tuple[socket.socket, Address]:
    """Opens a socket of the first process and returns it with its address.

    Args:
        hosts: Names of this machine, for the address.
        bind: The only address that it listens on. Empty: all.
    """
    both = not bind and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.create_server((bind, 0), family=family, dualstack_ipv6=both)
    server.settimeout(PATIENCE)
    return server, Address(hosts, server.getsockname()[1], secrets.token_hex(16))


def accepted(server: socket.socket, address: Address, count: int) -> dict[int, socket.socket]:
    """Accepts the other processes and returns their connections by the number of the process.

    Raises:
        ConnectionError: If they do not connect in time.
    """
    connections: dict[int, socket.socket] = {}
    with server:
        while len(connections) < count - 1:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = [index for index in range(1, count) if index not in connections]
                raise ConnectionError(
                    f"processes {missing} have not connected to port {address.port} of process 0"
                ) from None
            connection.settimeout(PATIENCE)
            with contextlib.suppress(OSError, ValueError):
                secret, _, index = connection.recv(100).decode().strip().partition(" ")
                if secrets.compare_digest(secret, address.secret) and 0 < int(index) < count:
                    connection.sendall(b"\n")
                    connections[int(index)] = connection
                    continue
            connection.close()
    return connections


def connected(address: Address, index: int) -> dict[int, socket.socket]:
    """Connects to the first process, as process ``index``, and returns the connection, under 0.

    Raises:
        ConnectionError: If no host of the address answers.
    """
    for host in dict.fromkeys(address.hosts):
        with contextlib.suppress(OSError):
            connection = socket.create_connection((host, address.port), timeout=PATIENCE / len(address.hosts))
            connection.sendall(f"{address.secret} {index}\n".encode())
            if connection.recv(1) == b"\n":
                return {0: connection}
    raise ConnectionError(f"process 0 cannot be reached at {' or '.join(address.hosts)}, port {address.port}")


def names() -> list[str]:
    """Returns names and addresses by which this machine may be known to others."""
    hosts = [socket.getfqdn(), socket.gethostname()]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing, but selects the outgoing interface
        hosts.insert(0, probe.getsockname()[0])
    return hosts


def _watched(connection: socket.socket) -> None:
    """Sets a connection up so that the system checks whether the other end is there."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in PROBES.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
