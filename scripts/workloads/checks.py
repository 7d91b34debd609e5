"""What is checked on a device rather than timed: equal bits of a training that is repeated, and tests."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMPARED = "policy.safetensors", "metrics.jsonl"


def repeated(words: Sequence[str]) -> dict[str, Any]:
    """Runs ``purerl train WORDS`` twice with ``--deterministic``, each compiled anew: whether the bits of `COMPARED`
    are ``equal``, and the mean ``return`` of the greedy policies. Raises `SystemExit` if a training fails."""
    digests = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            run = Path(folder, str(number))
            command = [sys.executable, "-m", "purerl.cli", "train", *words, "--deterministic", "--out", str(run)]
            code = subprocess.run([*command, "--compilation-cache", "off"], cwd=ROOT).returncode
            if code:
                raise SystemExit(code)
            digests.append([hashlib.sha256((run / name).read_bytes()).hexdigest() for name in COMPARED])
        summary = json.loads((run / "summary.json").read_text())
    return {"equal": digests[0] == digests[1], "return": round(summary["return_mean"], 1)}


def tests(words: Sequence[str]) -> dict[str, Any]:
    """Runs ``WORDS[0][name]`` for each further name by pytest, in this process: how many tests ``passed``, and which
    ``failed``. Raises `SystemExit` if pytest could not run them."""
    import pytest

    ends: dict[str, str] = {}

    class Ends:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.failed:
                ends[report.nodeid] = report.outcome

    first, *names = words
    with contextlib.chdir(ROOT):
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what is not needed may not be there
        options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider"]
        code = pytest.main([*options, *(f"{first}[{name}]" for name in names)], plugins=[Ends()])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(int(code))
    passed = sum(outcome == "passed" for outcome in ends.values())
    failed = [name.rpartition("::")[2] for name, outcome in ends.items() if outcome == "failed"]
    return {"passed": passed, "failed": failed}
