"""A long search in parts: each goes on from the state that the one before has left, by the code that began it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SAVING_SECONDS = 45
"""In which a search that is told to end finishes its generation and saves it."""
FINISHED = "closed.json"
"""What the last step of `reproduce.search` writes."""


def code(folder: Path, commit: str, given: Path | None) -> Path | str:
    """Where the code lies that goes on with the search in ``folder``: this checkout, if its ``commit`` began the search
    or begins it now, otherwise the folder that is ``given``, or a worktree of that commit, made where there is git. In
    place of it the reason why there is none, in words."""
    first = begun(folder)
    if not first:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.with_suffix(".commit").write_text(f"{commit}\n")
        first = commit
    if first.startswith(commit) or commit.startswith(first):
        return ROOT
    if given:
        return given
    tree = ROOT / "build" / "searches" / first
    git = ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), first]
    try:
        made = (tree / "purerl").is_dir() or subprocess.run(git, capture_output=True).returncode == 0
    except OSError:
        made = False
    return tree if made else f"it began at {first}, which git cannot check out here; give its code by --search-code"


def begun(folder: Path) -> str:
    """The commit that began the search in a folder; empty if none has."""
    path = folder.with_suffix(".commit")
    return path.read_text().strip() if path.exists() else ""


def go_on(code: Path, folder: Path, words: list[str], seconds: float, env: dict[str, str]) -> dict[str, Any]:
    """Runs ``scripts/reproduce.py WORDS --out FOLDER`` of ``code`` for at most so many seconds, saving included, in an
    environment: the generations that are there ``before`` and ``after`` it. Raises `SystemExit` with the code of one
    that failed."""
    before, start = generations(folder), time.monotonic()
    paths = os.pathsep.join([str(code), *filter(None, [env.get("PYTHONPATH")])])
    command = [sys.executable, str(code / "scripts" / "reproduce.py"), *words, "--out", str(folder.resolve())]
    process = subprocess.Popen(command, cwd=code, env={**env, "PYTHONPATH": paths})
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, seconds - SAVING_SECONDS))
    finally:
        ended(process)
    after, status = generations(folder), process.returncode
    if status not in (0, 128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL) or (status and after == before):
        raise SystemExit(status)
    return {"before": before, "after": after, "seconds": round(time.monotonic() - start, 1)}


def ended(process: subprocess.Popen) -> None:
    """Ends a search if it still runs, which saves itself first."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.poll() is None:
            process.terminate()
            process.wait(SAVING_SECONDS)
    process.kill()
    process.wait()


def generations(folder: Path) -> int:
    """How many are finished."""
    path = folder / "generations.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0
