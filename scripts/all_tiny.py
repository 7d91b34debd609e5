"""Runs every experiment of scripts/ at scale tiny, and says which fail.

    python scripts/all_tiny.py [NAME ...] [--at-once 2] [--seconds 600]

A script that has ``--scale`` is tried with each experiment that its command line has, in a process of its own with one
core, from an empty folder. Prints a row for each: seconds, exit code, and the command; what needs something that is not
here, such as another library, is not run. Programs are compiled quickly, as in the tests. Exits with 1 if one failed.
"""

import argparse
import importlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import scales

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "scripts"
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if "\ndef parser() " in path.read_text())
"""The scripts that are commands: those with a function that returns the parser."""


def tries(parser: argparse.ArgumentParser, first: tuple[str, ...] = ()) -> Iterator[tuple[list[str], str]]:
    """The words of every tiny run that a parser knows, and what it needs that is not here; none without a scale."""
    scale = next((each for each in parser._actions if isinstance(each, scales.Scale)), None)
    named = [each for each in parser._actions if not each.option_strings and each.choices and not each.nargs]
    experiments = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    if experiments:
        for name, experiment in experiments.choices.items():
            yield from tries(experiment, (*first, name))
    elif scale:
        for names in [(*first, name) for name in named[0].choices] if named else [first]:
            needs = scale.needs.get(names[0], "") if isinstance(scale.needs, dict) else scale.needs
            missing = [each for each in filter(None, needs.split(", ")) if not importlib.util.find_spec(each)]
            yield [*names, *scale.words, "--scale", "tiny"], ", ".join(missing)


def run(name: str, words: list[str], variables: dict[str, str], seconds: float) -> int:
    """Runs a command and returns its exit code, negative if it was ended after so many ``seconds``. Prints a row, and
    all that it said if it failed."""
    start, command = time.monotonic(), [sys.executable, str(FOLDER / f"{name}.py"), *words]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
            process.wait()
        said.seek(0)
        text = said.read() if process.returncode else ""
    print(f"{time.monotonic() - start:6.1f}  {process.returncode:>4}  {name}.py {shlex.join(words)}", flush=True)
    if text:
        print(text, flush=True)
    return process.returncode


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("names", nargs="*", metavar="NAME", help="scripts (default: all)")
    result.add_argument("--at-once", type=int, default=2, help="commands at once (default: 2)")
    result.add_argument("--seconds", type=float, default=600, help="time of a command (default: 600)")
    return result


def main() -> int:
    """Runs all and returns the exit code."""
    given, began = parser().parse_args(), time.monotonic()
    sys.path.append(str(ROOT / "tests"))
    from compiling import flags

    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    names = given.names or [name for name in COMMANDS if name != "all_tiny"]
    tried = [(name, *each) for name in names for each in tries(importlib.import_module(name).parser())]
    print("     s  code  command", flush=True)
    for name, words, missing in tried:
        if missing:
            print(f"     -     -  {name}.py {shlex.join(words)} (not run: needs {missing})", flush=True)
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(given.at_once) as pool:
        variables = {**os.environ, "PYTHONPATH": path, "NPROC": "1", "XLA_FLAGS": flags(), "JAX_PLATFORMS": "cpu"}
        variables |= {"JAX_COMPILATION_CACHE_DIR": cache}
        begin = lambda name, words: pool.submit(run, name, words, variables, given.seconds)
        runs = [begin(name, words) for name, words, missing in tried if not missing]
        results = [each.result() for each in runs]
    failed, used = sum(code != 0 for code in results), os.times()
    print(f"{len(results)} run, {failed} failed, {len(tried) - len(results)} not run; ", end="")
    print(f"{time.monotonic() - began:.0f} s, {used.children_user + used.children_system:.0f} s of one core")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
