"""Everything that a GPU is needed for, in stages of at most ten minutes that go on where the last one stopped.

    python scripts/on_gpu.py --out DIR [--scale full|tiny] [--seconds 600] \\
        [--peers purejaxrl rejax flashbax --peer-python PYTHON --purejaxrl CHECKOUT]

Each call runs the stages that are not done yet, as far as ``--seconds`` allow, and leaves in DIR what each printed; the
last one writes the GPU's section of docs/evidence/gpu.md (``--document`` names another file). Stages: the tests that
matter on a GPU; PPO on CartPole with 1, 64, 2048 and 16384 agents, beside PureJaxRL; DQN, beside rejax; replay
buffers, beside flashbax; brax's reacher; and the published search for a value loss, 512 candidates for 1024
generations, with its report and closed form. Only the peers that ``--peers`` names take part. ``--scale tiny`` tries
all of it on any machine, with CartPole for reacher. A stage that fails is told, and tried again by the next call.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- on_gpu.py: begin -->", "<!-- on_gpu.py: end -->"
STAGE_SECONDS = 600
LEAST_SECONDS = 60
"""A stage is not begun with less time left."""


class Stage(NamedTuple):
    """Commands, one after another. One with a file ``finished`` goes on when called again, until that is there."""

    name: str
    commands: list[list[str]]
    finished: Path | None = None


def stages(given: argparse.Namespace) -> list[Stage]:
    """What there is to do at this scale."""
    tiny, out, python = given.scale == "tiny", given.out, sys.executable
    benchmark = [python, "scripts/benchmark.py"]
    rounds = ["--processes", "1", "--rounds", "1", "--warmups", "0"] if tiny else ["--processes", "3", "--rounds", "3"]
    beside = lambda name, peer: ["--peer", peer, "--peer-python", given.peer_python] if name in given.peers else []
    purejaxrl = beside("purejaxrl", f"purejaxrl={given.purejaxrl}")
    tests = ["tests/hardware", "tests/algos/test_conformance.py", "-k", "trainings_agree or closed_form or packing"]
    pytest = ["env", "XLA_PYTHON_CLIENT_PREALLOCATE=false", python, "-m", "pytest", "-n", "4", "--all-tests"]
    results = [Stage("tests", [[*pytest, *tests[: 1 if tiny else None]]])]
    for agents in (1, 2) if tiny else (1, 64, 2048, 16384):
        size = ["--agents", str(agents), "--total-steps", "2048" if tiny else "500000"]
        results.append(Stage(f"ppo-{agents}", [[*benchmark, "ppo-cartpole", *size, *rounds, *purejaxrl]]))
    size = ["--agents", "1", "--total-steps", "4096"] if tiny else ["--agents", "1", "64", "1024"]
    results.append(Stage("dqn", [[*benchmark, "dqn-cartpole", *size, *rounds, *beside("rejax", "rejax")]]))
    size = ["--sizes", "1600"] if tiny else ["--sizes", "1e5", "1e6"]
    results.append(Stage("replay", [[*benchmark, "replay", *size, *rounds, *beside("flashbax", "flashbax")]]))
    reacher = ["train", "ppo", "--env", "brax/spring/reacher", "--preset", "brax", "--total-steps", "20_000_000"]
    reacher = ["train", "ppo", "--env", "CartPole-v1", "--total-steps", "2048"] if tiny else reacher
    results.append(
        Stage("brax", [[python, "-m", "purerl.cli", *reacher, "--overwrite", "--out", str(out / "reacher")]])
    )
    search = out / "search"
    scale = ["--scale", "ci" if tiny else "full", "--out", str(search)]
    short = ["--population", "4", "--generations", "2", "--total-steps", "2048"] if tiny else []
    command = [python, "scripts/reproduce.py", "value-loss", *scale, *short]
    results.append(Stage("search", [command], finished=search / "closed.json"))
    return results


def run(stage: Stage, out: Path, seconds: float) -> bool:
    """Runs a stage, its output in ``out``; whether it is done."""
    start, log = time.monotonic(), out / f"{stage.name}.txt"
    with log.open("a" if stage.finished else "w") as file:
        for command in stage.commands:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
            try:
                code = process.wait(max(1.0, seconds - (time.monotonic() - start)))
            except subprocess.TimeoutExpired:
                process.terminate()  # a search saves itself
                code = process.wait()
            if code:
                break
    done = code == 0 and (stage.finished is None or stage.finished.exists())
    fact = {"done": done, "code": code, "seconds": round(time.monotonic() - start, 1)}
    (out / f"{stage.name}.json").write_text(json.dumps(fact) + "\n")
    print(f"{stage.name}: {fact}", flush=True)
    return done


def is_done(stage: Stage, out: Path) -> bool:
    """Whether an earlier call finished a stage."""
    path = out / f"{stage.name}.json"
    return path.exists() and json.loads(path.read_text())["done"]


def section(result: list[Stage], out: Path) -> str:
    """The GPU's section, of what all stages printed."""
    facts = subprocess.run(
        [
            sys.executable,
            "-c",
            "import jax; d = jax.devices(); print(len(d), d[0].device_kind, 'jax', jax.__version__)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    date = datetime.datetime.now(datetime.UTC).date()
    lines = [BEGIN, "## On a GPU", "", f"{facts}, Python {platform.python_version()}, {date}."]
    lines += [f"`XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}`. Written by `python scripts/on_gpu.py`."]
    for stage in result:
        text = (out / f"{stage.name}.txt").read_text().strip().replace(f"{ROOT}/", "")
        lines += ["", f"### {stage.name}", "", "```", *text.splitlines()[-40:], "```"]
    return "\n".join([*lines, END, ""])


def write(text: str, document: Path) -> None:
    """Puts the section into a document, in place of the one before."""
    before = document.read_text() if document.exists() else ""
    if BEGIN in before:
        head, rest = before.split(BEGIN, 1)
        before = head + rest.split(END, 1)[1].lstrip("\n")
    document.write_text(before.rstrip("\n") + "\n\n" + text)


def main() -> int:
    """Runs what is left; 0 if all is done, 3 if another call has to go on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for what the stages print")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: a try on any machine")
    parser.add_argument("--seconds", type=float, default=STAGE_SECONDS, help="time for this call (default: 600)")
    parser.add_argument("--peers", nargs="*", default=[], help="purejaxrl, rejax, flashbax: those that take part")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--purejaxrl", help="a checkout of PureJaxRL")
    parser.add_argument(
        "--document", type=Path, default=ROOT / "docs" / "evidence" / "gpu.md", help="where the section goes"
    )
    given = parser.parse_args()
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    deadline, result = time.monotonic() + given.seconds, stages(given)
    for stage in result:
        left = min(deadline - time.monotonic(), STAGE_SECONDS)
        if not is_done(stage, given.out) and left >= min(LEAST_SECONDS, given.seconds):
            run(stage, given.out, left)
    undone = [stage.name for stage in result if not is_done(stage, given.out)]
    if undone:
        print(f"left: {', '.join(undone)}; call again")
        return 3
    write(section(result, given.out), given.document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
