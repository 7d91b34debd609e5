"""What making and closing cost: counts, licences, ports, databases, and `close` methods that fail."""

import os
import socket
import sqlite3
import time

from ten import Ten, note


class Counted(Ten):
    """Counts, no more; ``seconds`` is what its making takes."""

    def __init__(self, seconds=0.0):
        super().__init__()
        time.sleep(seconds)


class Fails(Ten):
    """Its `close` fails."""

    def close(self):
        super().close()
        raise RuntimeError("the simulator does not answer")


class Licence(Ten):
    """One at a time on this machine, as of software with one licence: a file is there while it is alive."""

    def __init__(self):
        os.close(os.open("licence.lock", os.O_CREAT | os.O_EXCL))
        super().__init__()

    def close(self):
        super().close()
        os.remove("licence.lock")


class Port(Ten):
    """Listens at a port of its own, the first of eight that is free."""

    def __init__(self, first=48650):
        self.socket = socket.socket()
        for port in range(first, first + 8):
            try:
                self.socket.bind(("127.0.0.1", port))
                break
            except OSError:
                continue
        else:
            raise OSError("all eight ports are taken")
        super().__init__()

    def close(self):
        super().close()
        self.socket.close()


class Database(Ten):
    """Keeps a connection of SQLite, which only the thread that opened it may use or close."""

    def __init__(self):
        super().__init__()
        self.database = sqlite3.connect(":memory:")

    def paid(self, action):
        return float(self.database.execute("select 1").fetchone()[0])

    def close(self):
        super().close()
        self.database.close()


class Raises(Ten):
    """Fails at its 30th step."""

    count = 0

    def paid(self, action):
        Raises.count += 1
        if Raises.count == 30:
            raise ValueError("the model broke")
        return 1.0


class Twice(Ten):
    """Notes if it is closed once more."""

    closed = False

    def close(self):
        super().close()
        if self.closed:
            note("closed_again")
        self.closed = True
