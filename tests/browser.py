"""Chromium without a window, driven over a pipe by its own protocol; nothing but the browser needs to be installed."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

PATH = next(
    (result for name in ("chromium", "chromium-browser", "google-chrome") if (result := shutil.which(name))), None
)
"""The browser's path; None if there is none."""
PATIENCE = 30.0
"""Seconds to wait for anything."""
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio"]


class Page:
    """A page of a browser; what it wrote to its console as errors is in ``errors``."""

    def __init__(self, writing: int, reading: int):
        self._writing, self._reading, self._rest, self._count, self.errors = writing, reading, b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Asks the browser for something, and returns its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            result = self._next()
            if result.get("id") == self._count:
                assert "error" not in result, result
                return result["result"]

    def go(self, address):
        self.call("Page.navigate", url=address)

    def js(self, text):
        """The value of an expression in the page, awaited."""
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, text):
        """Waits until an expression is true in the page, and returns its value. One that throws is not true yet."""
        guarded = f"(async () => {{ try {{ return {text} }} catch {{ return null }} }})()"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if value := self.js(guarded):
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {text}; the page says {self.js('document.body.innerText')[:500]!r}")

    def view(self, width, height, dark=False):
        """Sets the size of the window, and whether its owner likes it dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)

    def screenshot(self, path, whole=False):
        result = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(result["data"]))

    def _next(self):
        while b"\0" not in self._rest:
            more = os.read(self._reading, 2**16)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        result = json.loads(line)
        if result.get("method") == "Runtime.exceptionThrown":
            self.errors.append(result["params"]["exceptionDetails"])
        if result.get("method") == "Log.entryAdded" and result["params"]["entry"]["level"] == "error":
            self.errors.append(result["params"]["entry"]["text"])
        return result


@contextlib.contextmanager
def opened():
    """A page of a browser of its own, which ends with the block."""
    ours, theirs = os.pipe(), os.pipe()  # what the browser writes, and what it reads
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:

        def connect():
            os.dup2(theirs[0], 103)
            os.dup2(ours[1], 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        command = [PATH, *FLAGS, f"--user-data-dir={home}", "--remote-debugging-pipe"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, pass_fds=(), **quiet)
        os.close(theirs[0])
        os.close(ours[1])
        try:
            yield Page(theirs[1], ours[0])
        finally:
            process.kill()
            process.wait()
            os.close(theirs[1])
            os.close(ours[0])
