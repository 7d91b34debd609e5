"""Everything that a GPU is needed for: a queue of stages, for the minutes in which one is at hand.

    python scripts/on_gpu.py [--commit HASH] [--seconds 570] [--only STAGE ...] \\
        [--peers rejax purejaxrl=CHECKOUT --peer-python PYTHON] [--search-code FOLDER]
    python scripts/on_gpu.py --scale tiny

Each stage is a process of its own, ends within its limit, and appends a line to ``gpu.jsonl``. A stage that has a line
for this card is not measured again, except the base, which is measured first and last. Then the page
``gpu-results.md`` is made of all lines; ``--seconds 0`` does that alone. Two runs are not timed, then three are.

The seconds that remain go to the search for a value loss at full scale (``scripts/reproduce.py``), which goes on where
the last visit left it. Its state is kept in ``searches/``, beside the commit that began it; the code of that commit
runs it, whatever the checkout is.

``--out`` is the folder of all these, by default the documentation. ``--scale tiny`` tries every stage on any machine,
and writes to ``runs/on-gpu-tiny``. A stage that fails is told, and tried again by the next call.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import benchmark
import results
from gpu_stages import BASE, PEERS, STAGES, Stage, speed
from workloads import searches

from purerl.version import __version__

ROOT = Path(__file__).parent.parent
LINES, PAGE = "gpu.jsonl", "gpu-results.md"
MOST_SECONDS = 120
"""The longest limit of a stage."""
TINY_SECONDS = 400
"""The limit of every stage at the scale tiny, and of the search: a busy CPU takes long to compile."""
SEARCH = "value-loss"
SEARCH_WORDS = {
    "full": "value-loss --scale full",
    "tiny": "value-loss --scale ci --population 4 --generations 2 --total-steps 2048",
}
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Flags with which a CPU compiles sooner, to slower programs."""
LEAST_SEARCH_SECONDS = 100
"""With less time left the search does not go on: it compiles first."""
Line = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """The parser of a command line."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: a try on any machine")
    result.add_argument("--seconds", type=float, default=570, help="time for this call (default: 570)")
    result.add_argument("--commit", default=results.commit(), help="that of this checkout, where git does not tell it")
    result.add_argument("--only", nargs="+", metavar="STAGE", help="stages to choose from (default: all)")
    result.add_argument("--peers", nargs="*", default=[], help="rejax, purejaxrl=CHECKOUT: those that take part")
    result.add_argument("--peer-python", default=sys.executable, help="their interpreter, or a folder of packages")
    result.add_argument("--search-code", type=Path, help="checkout of the commit that began the search")
    result.add_argument("--out", type=Path, help="folder of the lines, the page and the search")
    return result


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads a command line, by default that of this process."""
    reader = parser()
    given = reader.parse_args(words)
    names = [stage.name for stage in STAGES] + ["search"]
    if unknown := set(given.only or ()) - set(names):
        reader.error(f"--only {sorted(unknown)[0]}: must be among {', '.join(names)}")
    given.peers = {peer.partition("=")[0]: peer for peer in given.peers}
    if unknown := given.peers.keys() - PEERS.keys():
        reader.error(f"--peers {sorted(unknown)[0]}: must be {' or '.join(PEERS.values())}")
    for stage in STAGES:
        if stage.call is speed and stage.peer in given.peers:
            benchmark.arguments(stage.at(given.scale, given.peers, given.peer_python))
    if not (Path(given.peer_python).is_dir() or shutil.which(given.peer_python)):
        reader.error(f"--peer-python {given.peer_python}: is neither a folder nor a program")
    if given.search_code and not (given.search_code / "scripts" / "reproduce.py").is_file():
        reader.error(f"--search-code {given.search_code}: must be a checkout, which has scripts/reproduce.py")
    if given.commit == "?" and given.seconds:
        reader.error("--commit: must be given, since git does not tell it here")
    given.out = given.out or (results.DOCS if given.scale == "full" else ROOT / "runs" / "on-gpu-tiny")
    return given


def environment(scale: str, stage: Stage | None = None) -> dict[str, str]:
    """Of the processes of a stage: programs that one has compiled are there for the next."""
    programs = str(Path(tempfile.gettempdir(), "purerl-on-gpu"))
    flags = [os.environ.get("XLA_FLAGS", ""), QUICK if scale == "tiny" else stage.flags if stage else ""]
    return {
        "JAX_COMPILATION_CACHE_DIR": programs,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
        "XLA_FLAGS": " ".join(filter(None, flags)),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def device(scale: str) -> dict[str, str]:
    """The card, as JAX calls it, its driver, and versions."""
    asked = "import jax; print(jax.devices()[0].device_kind)"
    card = subprocess.check_output([sys.executable, "-c", asked], env=environment(scale), text=True).strip()
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.check_output(query, text=True).split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = ""
    return {"card": card, "driver": driver, "jax": importlib.metadata.version("jax"), "purerl": __version__}


def within(command: Sequence[str], env: dict[str, str], seconds: float) -> tuple[str, str]:
    """Runs a command and ends it, with all processes that it started, after so many seconds: what it has printed, and
    why it failed, or nothing."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=env, text=True, start_new_session=True
        )
        try:
            answer, _ = process.communicate(timeout=seconds)
            reason = f"ended with {process.returncode}" if process.returncode else ""
        except subprocess.TimeoutExpired:
            answer, reason = "", f"took more than {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        errors.seek(0)
        return answer, "\n".join([reason, *errors.read().splitlines()[-15:]]) if reason else ""


def why_not(stage: Stage, given: argparse.Namespace) -> str:
    """Why a stage is skipped; empty if it is not."""
    if stage.peer and stage.peer not in given.peers:
        return f"{stage.peer} does not take part"
    if given.scale == "full" and stage.needs and importlib.util.find_spec(stage.needs) is None:
        return f"{stage.needs} is not installed"
    return ""


def due(lines: Iterable[Line], card: str) -> list[Stage]:
    """The stages without a line for a card, and the base."""
    there = {line["stage"] for line in lines if line["card"] == card}
    return [stage for stage in STAGES if stage in BASE or stage.name not in there]


def read(path: Path) -> list[Line]:
    """All lines, in the order in which they were measured."""
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def visit(given: argparse.Namespace) -> int:
    """Measures what is due as far as the time allows, then goes on with the search; 1 if something failed."""
    deadline, facts, path = time.monotonic() + given.seconds, device(given.scale), given.out / LINES
    left = lambda: deadline - time.monotonic()
    chosen = [stage for stage in due(read(path), facts["card"]) if not given.only or stage.name in given.only]
    base, failed = [stage for stage in chosen if stage in BASE], []
    print(f"{facts}, commit {given.commit}", flush=True)

    def append(stage: str, figures: dict[str, Any], words: str, flags: str) -> None:
        spread = {"spread": figures.pop("spread")} if "spread" in figures else {}
        date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        where = {**facts, "flags": flags, "commit": given.commit, "date": date, "command": words}
        line = {"stage": stage, **where, "figures": figures, **spread}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def measure(stage: Stage) -> None:
        start, words = time.monotonic(), stage.at(given.scale, given.peers, given.peer_python)
        env = environment(given.scale, stage)
        command = [sys.executable, __file__, "stage", stage.name, *words]
        answer, reason = within(command, env, min(stage.seconds if given.scale == "full" else TINY_SECONDS, left()))
        if reason:
            failed.append(stage.name)
            print(f"{stage.name}: failed, {reason}", flush=True)
            return
        append(stage.name, json.loads(answer), stage.command(given.scale), env["XLA_FLAGS"])
        print(f"{stage.name}: {time.monotonic() - start:.0f} s", flush=True)

    reserved, measured, waiting = sum(stage.seconds for stage in base), False, []
    for stage in chosen:
        if reason := why_not(stage, given):
            print(f"{stage.name}: skipped, {reason}", flush=True)
        elif left() < stage.seconds + (0 if stage in base else reserved):
            waiting.append(stage.name)
        else:
            measure(stage)
            measured |= stage not in base
    for stage in base if measured else ():
        if left() >= stage.seconds:
            measure(stage)
    if waiting:
        print(f"left for the next visit: {', '.join(waiting)}", flush=True)
    if not given.only or "search" in given.only:
        failed += search(given, left() if given.scale == "full" else min(left(), TINY_SECONDS), append)
    return int(bool(failed))


def search(given: argparse.Namespace, seconds: float, append: Callable[..., None]) -> list[str]:
    """Goes on with the long search, and appends its line; the names of what failed."""
    folder, words = given.out / "searches" / SEARCH, SEARCH_WORDS[given.scale]
    if (folder / searches.FINISHED).exists():
        print("search: finished")
    elif seconds < LEAST_SEARCH_SECONDS:
        print(f"search: skipped, {max(0.0, seconds):.0f} s are left and it takes {LEAST_SEARCH_SECONDS}")
    elif given.commit.endswith("+"):
        print(f"search: skipped, no commit has this checkout ({given.commit})")
    elif isinstance(code := searches.code(folder, given.commit, given.search_code), str):
        print(f"search: skipped, {code}")
    else:
        env = environment(given.scale)
        try:
            figures = searches.go_on(code, folder, words.split(), seconds, env)
            figures["begun_at"] = searches.begun(folder)
            append("search", figures, f"python scripts/reproduce.py {words}", env["XLA_FLAGS"])
        except SystemExit as stop:
            print(f"search: failed, ended with {stop.code}", flush=True)
            return ["search"]
    return []


def page(lines: Iterable[Line]) -> str:
    """The lines as a page, a section for each card."""
    order = {stage.name: i for i, stage in enumerate(STAGES)}
    lines, text = sorted(lines, key=lambda line: order.get(line["stage"], len(order))), [HEAD]
    for card in dict.fromkeys(line["card"] for line in lines):
        here = [line for line in lines if line["card"] == card]
        timed = [line for line in here if "frames_per_second" in line["figures"]]
        text += [f"\n## {card}\n", *(TABLE if timed else ()), *map(cells, timed)]
        others = [line for line in here if line not in timed]
        text += ["", *(OTHERS if others else ()), *map(other_cells, others)]
        for line in others:
            if kernels := line["figures"].get("longest"):
                text += [f"\n### The longest kernels of {line['stage']}\n", *KERNELS]
                text += [
                    f"| `{name}` | {runs:,} | {share:.1%} | {'' if rate is None else f'{rate:,.0f}'} |"
                    for name, runs, share, rate in kernels
                ]
    return "\n".join(text).rstrip("\n") + "\n"


def cells(line: Line) -> str:
    """A line with frames/s as a row of its table."""
    ours = line["figures"]
    sides = [ours, ours["peer"]] if "peer" in ours else [ours]
    both = lambda show, name: ", ".join(show(side) for side in sides if name in side)
    returns = both(lambda side: f"{side['return']} +- {side.get('return_error', 0)}", "return")
    returns += f"; {ours['seconds_until']} s until it" if "seconds_until" in ours else ""
    peer = f"{ours['peer']['name']} {ours['peer']['frames_per_second']:,.0f}" if "peer" in ours else ""
    columns = [
        line["stage"],
        f"{ours['frames_per_second']:,.0f}",
        line.get("spread", ""),
        peer,
        f"**{ours['ratio']}**" if "ratio" in ours else "",
        both(lambda side: str(side["compile_seconds"]), "compile_seconds"),
        both(lambda side: str(side["peak_gb"]), "peak_gb"),
        returns,
        *origin(line),
    ]
    return f"| {' | '.join(columns)} |"


def other_cells(line: Line) -> str:
    """Any other line as a row."""
    words = [f"{name} {value}" for name, value in line["figures"].items() if name != "longest"]
    return f"| {' | '.join([line['stage'], ', '.join(words).replace('_', ' '), *origin(line)])} |"


def origin(line: Line) -> list[str]:
    """What was measured: the command with XLA's flags, and by what."""
    flags = f" `XLA_FLAGS={line['flags']}`" if line["flags"] else ""
    versions = f"purerl {line['purerl']} at {line['commit']}, jax {line['jax']}"
    driver = f", driver {line['driver']}" if line["driver"] else ""
    note = f"; {line['note']}" if "note" in line else ""
    return [f"`{line['command']}`{flags}", f"{versions}{driver}, {line['date']}{note}"]


HEAD = """\
# Measured on GPUs

[`scripts/on_gpu.py`](gpu.md#measuring) has measured all of it, and has made this page of its lines, `gpu.jsonl`. Each
line is a process of its own with nothing beside it: two warm-ups unless the command has another number, then the median
of three runs, whose spread is that between the slowest and the fastest. Frames are environment steps of all agents. The
base is measured first and last in each visit to a card. Two figures in a column are purerl's and the peer's, which take
turns. Seconds of compiling are few where an earlier stage has left the program in the cache. Returns are of the last
twentieth of the training, the mean over agents with its standard error."""
MEASURED = "| command | measured by |"
TABLE = (
    f"| stage | frames/s | spread | peer, frames/s | ratio | compile, s | peak, GB | return {MEASURED}",
    "|---|---|---|---|---|---|---|---|---|---|",
)
OTHERS = f"| stage | figures {MEASURED}", "|---|---|---|---|"
KERNELS = "| kernel | runs | share of the time | GB/s |", "|---|---|---|---|"


def main() -> int:
    """Makes a visit and writes the page."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what it has started ends with it
    given.out.mkdir(parents=True, exist_ok=True)
    code = visit(given) if given.seconds else 0
    (given.out / PAGE).write_text(page(read(given.out / LINES)))
    return code


def stage(name: str, *words: str) -> None:
    """The process of a stage: prints its figures as JSON, and all else to standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        (found,) = (each for each in STAGES if each.name == name)
        print(json.dumps(found.call(words)), file=answers)


if __name__ == "__main__":
    if sys.argv[1:2] == ["stage"]:
        stage(*sys.argv[2:])
    else:
        sys.exit(main())
