"""Runs environments of the kinds that people own, as a user would, and compares what is seen with what is right.

    python scripts/field.py [--only "sums|agents"] [--fast] [--json FILE] [--checkout PATH]

The environments are those of `tests/field`, the cases those of `field_cases`. A case is one command of purerl or a few,
in a copy of that folder. Prints a row for each: what is right, what was seen, whether that is right, and how many
instances were made, closed and stepped; `even` says whether these are as many as they should be: all three equal where
a command ends with 0, and as many closed as made where it is refused. Exits with 1 if any case is wrong or uneven.

``--checkout`` runs the cases on the purerl of another checkout, such as a worktree of an earlier commit.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import field_cases
import psutil
import scales
from field_cases import Case, words
from field_checks import Ran, Seen

ROOT = Path(__file__).parent.parent
GRACE = 2.0
"""Seconds after a command in which its processes may still end."""
AFTER_SIGNAL = 30.0
"""Seconds after an interrupt in which a command may still end."""


class Outcome(NamedTuple):
    """A row of the table."""

    case: str
    kind: str
    right: str
    seen: str
    ok: bool
    even: bool
    made: int
    closed: int
    stepped: int
    moved: int
    left: int
    seconds: float


def environment(case: Case, folder: Path, checkout: Path, cache: Path) -> dict[str, str]:
    """The variables of a case's commands: the checkout's purerl, one core, and a state that begins empty."""
    own: dict[str, Any] = {
        "FIELD_COUNTS": folder / "counts.txt",
        "FIELD_SEEN": folder / "seen.txt",
        "FIELD_RICH": folder / "rich",
    }
    own |= {"PYTHONPATH": checkout, "NPROC": 1, "JAX_PLATFORMS": "cpu", "XDG_STATE_HOME": folder / "state"}
    own |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}
    return {**os.environ, **{name: str(value) for name, value in own.items()}, **case.variables}


def of(given: tuple[str, ...]) -> list[str]:
    """What runs a script of the folder, or a command of purerl as its program does: without the folder on the path."""
    if given[0].endswith(".py"):
        return [sys.executable, *given]
    return [sys.executable, "-P", "-m", "purerl.cli", *given]


def marked(counts: str) -> list[psutil.Process]:
    """The processes that have inherited the variable that names the file of counts."""
    results = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("FIELD_COUNTS") == counts and process.status() != psutil.STATUS_ZOMBIE:
                results.append(process)
    return results


def run(given: tuple[str, ...], case: Case, place: Path, variables: dict[str, str]) -> Ran:
    """Runs one command, and interrupts it where the case says; its processes are counted, then ended."""
    lines: list[tuple[float, str]] = []
    began, sent, hung = time.monotonic(), 0.0, False
    word, after = case.interrupt or ("", 0.0)
    with open(place / "stdout.txt", "w+") as out:
        process = subprocess.Popen(
            of(given), cwd=place, env=variables, stdout=out, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

        def read() -> None:
            for line in process.stderr or ():
                lines.append((time.monotonic(), line.rstrip("\n")))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while process.poll() is None:
            now = time.monotonic()
            begun = next((at for at, line in list(lines) if word and word in line), now)
            if not sent and now - begun > after:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                sent = now
            if now - began > case.timeout or (sent and now - sent > AFTER_SIGNAL):
                hung = True
                break
            time.sleep(0.02)
        ended = time.monotonic()
        until = ended if hung else ended + GRACE
        while (left := marked(variables["FIELD_COUNTS"])) and time.monotonic() < until:
            time.sleep(0.05)
        for each in left:
            with contextlib.suppress(psutil.Error):
                each.kill()
        if hung:
            process.kill()
        process.wait()
        reader.join(GRACE)
        out.seek(0)
        text = out.read()
    return Ran(process.returncode, text, lines, began, ended, sent, hung, 0 if hung else len(left))


def counted(path: Path) -> tuple[collections.Counter, int]:
    """How often each word is in the file of counts, with the sum of ``steps``, and how many instances moved.

    An instance has moved if the thread or the process that made it is not the one that steps and closes it.
    """
    counts: collections.Counter = collections.Counter()
    places = collections.defaultdict(set)
    for line in path.read_text().splitlines() if path.exists() else ():
        word, process, thread, number, value = line.split()
        counts[word] += int(value) if word == "steps" else 1
        if word in ("made", "stepped", "closed"):
            places[process, number].add(thread)
    return counts, sum(len(threads) > 1 for threads in places.values())


def outcome(case: Case, checkout: Path, cache: Path) -> Outcome:
    """Runs a case and checks it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "field"
        shutil.copytree(ROOT / "tests" / "field", folder, ignore=shutil.ignore_patterns("__pycache__"))
        place = folder / case.folder
        variables = environment(case, folder, checkout, cache)
        ran: list[Ran] = []
        for command in [case.commands] if isinstance(case.commands, str) else case.commands:
            ran.append(run(words(command), case._replace(interrupt=None) if ran else case, place, variables))
        counts, moved = counted(folder / "counts.txt")
        seen = Seen(place, tuple(ran), counts)
        try:
            ok, text = case.check(seen)
        except (OSError, LookupError, ValueError, TypeError) as error:
            ok, text = False, f"{seen.says()} ({type(error).__name__}: {error})"
    made, closed, stepped = counts["made"], counts["closed"], counts["stepped"]
    left = sum(each.left for each in ran)
    even = made == closed and (stepped == made or any(each.code for each in ran)) and not left
    text = text if len(text) <= 160 else text[:159] + "…"
    seconds = round(time.monotonic() - began, 1)
    return Outcome(
        case.name, case.kind, case.right, text, ok, even or case.uneven, made, closed, stepped, moved, left, seconds
    )


def row(each: Outcome) -> str:
    """A line of the table."""
    counts = f"{each.made:4} {each.closed:6} {each.stepped:7} {each.moved:5} {each.left:4}"
    marks = f"{'ok' if each.ok else 'WRONG':5} {'even' if each.even else 'UNEVEN':6}"
    return f"{each.kind} {each.case:34} {marks} {counts} {each.seconds:5.0f}  {each.right} | {each.seen}"


def chosen(only: str, fast: bool) -> list[Case]:
    """The cases whose name or kind the pattern finds, the slow ones first, or left out."""
    found = [case for case in field_cases.CASES if re.search(only, f"{case.kind} {case.name}")]
    return sorted((case for case in found if not (fast and case.slow)), key=lambda case: not case.slow)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--only", default="", metavar="PATTERN", help="cases whose kind and name this finds")
    result.add_argument("--fast", action="store_true", help="leave out the slow ones")
    result.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    result.add_argument("--checkout", type=Path, default=ROOT, help="whose purerl to run")
    result.add_argument("--at-once", type=int, default=2, help="number of cases at once")
    result.add_argument("--list", action="store_true", help="list the cases and run nothing")
    scales.add(result, only="counted$")
    return result


def main() -> int:
    """Runs everything and returns the exit code."""
    given = parser().parse_args()
    cases = chosen(given.only, given.fast)
    if given.list:
        for case in cases:
            print(f"{case.kind} {case.name}: {case.right}")
        return 0
    results: list[Outcome] = []
    order = {case.name: i for i, case in enumerate(field_cases.CASES)}
    print("k case                               right counts made closed stepped moved left  sec  right | seen")
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        cache = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", scratch))
        for done in concurrent.futures.as_completed(
            [pool.submit(outcome, case, given.checkout.resolve(), cache) for case in cases]
        ):
            results.append(done.result())
            print(row(done.result()), flush=True)
            if given.json:
                results.sort(key=lambda each: order[each.case])
                given.json.write_text(json.dumps([each._asdict() for each in results], indent=1) + "\n")
    wrong, uneven = (sum(not getattr(each, name) for each in results) for name in ("ok", "even"))
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in results) for name in ("made", "closed", "left")}
    told = ", ".join(f"{value} {name}" for name, value in sums.items())
    print(f"{len(results)} cases: {len(results) - wrong} right, {wrong} wrong, {uneven} uneven; {told}")
    return int(bool(wrong or uneven))


if __name__ == "__main__":
    sys.exit(main())
