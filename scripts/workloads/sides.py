"""The sides of a workload: purerl's, and a peer's in an interpreter of its own."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workloads import turns

SCRIPT = Path(__file__).parents[1] / "benchmark.py"


def side(name: str, python: str, request: dict[str, Any], environment: dict[str, str] | None = None) -> turns.Side:
    """A side whose worker is this script.

    In place of an interpreter ``python`` may be a folder of packages: this interpreter, which looks there first.
    """
    variables = dict(environment or {})
    if Path(python).is_dir():
        there = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(python).resolve()), there]))
        python = sys.executable
    return turns.Side(name, [python, str(SCRIPT), "worker"], request, variables)


def ours(words: str, request: dict[str, Any], name: str = "purerl") -> turns.Side:
    """A side that trains with purerl, as the ``words`` after ``purerl train`` say (`training`)."""
    return side(name, sys.executable, {**request, "side": "purerl", "options": shlex.split(words)})


def training(request: dict[str, Any]) -> turns.Job:
    """The job of `ours`, which is that of ``purerl benchmark``."""
    from purerl.cli import benchmark_worker

    return benchmark_worker.job(request)


def checked(job: turns.Job, check: Callable[[dict[str, Any]], Any]) -> turns.Job:
    """A job of which ``check`` sees what is told of a run, and may end it."""

    def tally(result: Any) -> dict[str, Any]:
        told = job.tally(result)
        check(told)
        return told

    return job._replace(tally=tally)
