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
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmark
import results
from workloads import checks, searches

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
PEERS = {"rejax": "rejax", "purejaxrl": "purejaxrl=CHECKOUT"}
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Flags with which a CPU compiles sooner, to slower programs."""
LEAST_SEARCH_SECONDS = 100
"""With less time left the search does not go on: it compiles first."""
Line = dict[str, Any]


def speed(words: Sequence[str]) -> dict[str, Any]:
    """Figures of a workload of ``scripts/benchmark.py``, of one row: those of purerl, and of the peer as ``peer``."""
    (row,) = benchmark.measured(benchmark.arguments(words))
    sides = {name: each for name, each in row.items() if isinstance(each, dict) and "frames_per_second" in each}
    if not sides:
        return row
    (_, ours), *others = sides.items()
    seconds = ours["seconds"]
    told = {"agents": row["agents"], **of_side(ours)}
    told |= {"spread": f"{100 * (seconds['high'] - seconds['low']) / seconds['median']:.1f} %"}
    for name, theirs in others:
        told |= {"peer": {"name": name, **of_side(theirs)}, "ratio": round(row["ratio"]["median"], 2)}
    return told


def of_side(side: dict[str, Any]) -> dict[str, Any]:
    """The figures of one side that a line has."""
    told = {
        "frames_per_second": float(f"{side['frames_per_second']['median']:.4g}"),
        "compile_seconds": round(side["compile_seconds"]["median"], 1),
        "peak_gb": round(side["peak_mib"]["median"] * 2**20 / 1e9, 2),
    }
    told |= {name: round(side[name], 2) for name in ("return", "return_error") if name in side}
    if "share_until" in side:
        told["seconds_until"] = round(side["share_until"] * side["seconds"]["median"], 1)
    return told


COMMANDS = {
    speed: "python scripts/benchmark.py {}",
    checks.repeated: "purerl train {} --deterministic",
    checks.tests: "pytest {}",
}
"""What a stage does, as a person types it."""
ROUNDS = {"full": "--processes 1 --rounds 3 --warmups 2", "tiny": "--processes 1 --rounds 1 --warmups 1"}


class Stage(NamedTuple):
    """``call(words)`` returns the figures of its line, within ``seconds``.

    ``tiny`` are the words at that scale. ``flags`` are XLA's and for GPUs; the scale tiny has `QUICK` in their place.
    ``peer`` must take part, or the stage is skipped, and at full scale the packages that it ``needs`` must be there.
    """

    name: str
    call: Callable[[Sequence[str]], dict[str, Any]]
    words: str
    tiny: str
    seconds: int = 60
    flags: str = ""
    peer: str = ""
    needs: str = ""

    def at(self, scale: str, peers: dict[str, str], peer_python: str) -> list[str]:
        """The words of a call."""
        first, *words = shlex.split(self.tiny if scale == "tiny" else self.words)
        if self.call is speed:
            words = [*ROUNDS[scale].split(), *words]
        beside = ["--peer", peers[self.peer], "--peer-python", peer_python] if self.peer else []
        return [first, *words, *beside]

    def command(self, scale: str) -> str:
        """What it does, without the places of peers on a machine."""
        words = self.tiny if scale == "tiny" else self.words
        words += f" --peer {PEERS[self.peer]} --peer-python PYTHON" if self.peer else ""
        return COMMANDS[self.call].format(words)


PPO, ONE = "ppo-cartpole --agents 2048 --total-steps 65536", "ppo-cartpole --agents 1 --total-steps 131072"
TINY = "ppo-cartpole --agents 2 --total-steps 2048"
BASE = (Stage("base-2048", speed, PPO, TINY, 50), Stage("base-1", speed, ONE, TINY, 50))
REPLAY_TINY = "--num-envs 4 --num-steps 8 --warmup-steps 128 --capacity 256 --batch-size 4"
R2D2, R2D2_TINY = "algorithms r2d2 --total-steps 20000", f'algorithms "r2d2 {REPLAY_TINY}" --total-steps 512'
QMIX = "algorithms qmix --env TwoStep-v0 --total-steps 20000"
QMIX_TINY = f'algorithms "qmix {REPLAY_TINY}" --env TwoStep-v0 --total-steps 512'
IMPALA, IMPALA_TINY = "algorithms impala --total-steps 65536", "algorithms impala --total-steps 1024"
GRU = 'algorithms "ppo --memory gru" --total-steps 65536'
GRU_TINY = 'algorithms "ppo --memory gru --num-steps 16" --total-steps 512'
DQN, DQN_TINY = "dqn-cartpole --total-steps 20000", "dqn-cartpole --agents 2 --total-steps 1500"
SAC_TINY = "sac-pendulum --agents 2 --total-steps 1100"
IMAGES = "--env Breakout-MinAtar --total-steps 131072 --agents 64"
IMAGES_TINY = "--env Breakout-MinAtar --agents 2 --total-steps"
PHYSICS = "--warmups 1 --rounds 1 --agents 1"
UNTIL_TINY = "algorithms ppo --total-steps 2048 --until 20"
CLOSED = "tests/algos/test_conformance.py::test_truncation_in_closed_form"
SEEDS = "--env CartPole-v1 --eval-episodes 2 --total-steps"
SHARDS = "ppo --num-envs 16 --shards 4 --exact"
STAGES = (
    *BASE,
    Stage("bfloat16-2048", speed, f"{PPO} --precision bfloat16", f"{TINY} --precision bfloat16"),
    Stage("bfloat16-1", speed, f"{ONE} --precision bfloat16", f"{TINY} --precision bfloat16"),
    Stage("ppo-1-beside-purejaxrl", speed, ONE, TINY, 90, peer="purejaxrl"),
    Stage("ppo-64-beside-purejaxrl", speed, f"{ONE} --agents 64", TINY, 90, peer="purejaxrl"),
    Stage("ppo-2048-beside-purejaxrl", speed, PPO, TINY, 110, peer="purejaxrl"),
    Stage("profile-2048", speed, "profile --agents 2048", "profile --agents 2 --total-steps 2048", 90),
    Stage("ppo-16384", speed, "ppo-cartpole --agents 16384 --total-steps 16384", TINY, 80),
    Stage("ppo-2048-lanes-256", speed, f"{PPO} --lanes 256", f"{TINY} --lanes 1"),
    Stage("ppo-2048-lanes-512", speed, f"{PPO} --lanes 512", f"{TINY} --lanes 1"),
    Stage("ppo-8192", speed, "ppo-cartpole --agents 8192 --total-steps 16384", TINY),
    Stage("ppo-4096", speed, "ppo-cartpole --agents 4096 --total-steps 32768", TINY),
    Stage("ppo-1024", speed, "ppo-cartpole --agents 1024 --total-steps 65536", TINY),
    Stage("ppo-256", speed, "ppo-cartpole --agents 256 --total-steps 65536", TINY),
    Stage("dqn-512", speed, f"{DQN} --agents 512", DQN_TINY, 120),
    Stage("dqn-1-beside-rejax", speed, "dqn-cartpole --total-steps 20000", DQN_TINY, 120, peer="rejax"),
    Stage("dqn-64-beside-rejax", speed, f"{DQN} --agents 64", DQN_TINY, 120, peer="rejax"),
    Stage("dqn-512-beside-rejax", speed, "dqn-cartpole --agents 512 --total-steps 5000", DQN_TINY, 120, peer="rejax"),
    Stage("impala-2048", speed, f"{IMPALA} --agents 2048", f"{IMPALA_TINY} --agents 2"),
    Stage("impala-1", speed, f"{IMPALA} --agents 1", f"{IMPALA_TINY} --agents 2"),
    Stage("sac-64", speed, "sac-pendulum --agents 64", SAC_TINY, 90),
    Stage("sac-1", speed, "sac-pendulum --agents 1", SAC_TINY, 90),
    Stage("r2d2-64", speed, f"{R2D2} --agents 64", f"{R2D2_TINY} --agents 2", 120),
    Stage("r2d2-1", speed, f"{R2D2} --agents 1", f"{R2D2_TINY} --agents 2", 90),
    Stage("qmix-64", speed, f"{QMIX} --agents 64", f"{QMIX_TINY} --agents 2", 90),
    Stage("qmix-1", speed, f"{QMIX} --agents 1", f"{QMIX_TINY} --agents 2", 90),
    Stage("ppo-gru-512", speed, f"{GRU} --agents 512", f"{GRU_TINY} --agents 2", 120),
    Stage("ppo-gru-1", speed, f"{GRU} --agents 1", f"{GRU_TINY} --agents 2", 90),
    Stage(
        "minatar-ppo-64",
        speed,
        f'algorithms "ppo --preset image" {IMAGES}',
        f'algorithms "ppo --preset image --num-steps 4" {IMAGES_TINY} 1024',
        90,
    ),
    Stage(
        "minatar-pqn-64",
        speed,
        f'algorithms "pqn --preset image" {IMAGES}',
        f'algorithms "pqn --preset image --num-steps 4" {IMAGES_TINY} 1024',
        90,
    ),
    Stage(
        "minatar-rainbow-8",
        speed,
        'algorithms "rainbow --preset image" --env Breakout-MinAtar --total-steps 30000 --agents 8',
        f'algorithms "rainbow --hidden-sizes 8 {REPLAY_TINY}" --total-steps 512 --agents 2',
        120,
    ),
    Stage(
        "ant-until-2000",
        speed,
        'algorithms "ppo --env-params resets=pool:256 --preset brax --hidden-sizes 64 64" --env brax/positional/ant '
        f"--total-steps 10000000 --until 2000 {PHYSICS}",
        UNTIL_TINY,
        120,
        needs="brax",
    ),
    Stage(
        "cartpole-balance-until-900",
        speed,
        'algorithms "ppo --preset brax --hidden-sizes 64 64" --env playground/CartpoleBalance '
        f"--total-steps 10000000 --until 900 {PHYSICS}",
        UNTIL_TINY,
        120,
        needs="mujoco_playground",
    ),
    Stage(
        "hopper-beside-purejaxrl",
        speed,
        f"ppo-hopper --total-steps 5000000 {PHYSICS}",
        TINY,
        120,
        peer="purejaxrl",
        needs="brax",
    ),
    Stage("closed-forms-on-policy", checks.tests, f"{CLOSED} ppo a2c impala", f"{CLOSED} a2c", 120, needs="pytest"),
    Stage("closed-forms-from-replay", checks.tests, f"{CLOSED} dqn sac r2d2", f"{CLOSED} a2c", 120, needs="pytest"),
    Stage(
        "programs-agree",
        checks.tests,
        "tests/hardware/test_programs.py::test_trainings_agree ppo a2c dqn r2d2 optimiser",
        "tests/hardware/test_programs.py::test_trainings_agree a2c",
        120,
        needs="pytest",
    ),
    Stage(
        "deterministic-64",
        checks.repeated,
        f"ppo {SEEDS} 65536 --num-seeds 64",
        f"ppo {SEEDS} 2048 --num-seeds 2",
        90,
    ),
    Stage("shards-4-exact", checks.repeated, f"{SHARDS} {SEEDS} 131072", f"{SHARDS} --num-steps 16 {SEEDS} 1024", 90),
    *(
        Stage(name, speed, PPO, TINY, flags=flags)
        for name, flags in {
            "no-triton-gemm-2048": "--xla_gpu_enable_triton_gemm=false",
            "cublaslt-2048": "--xla_gpu_enable_cublaslt=true",
            "exhaustive-tiling-2048": "--xla_gpu_exhaustive_tiling_search=true",
            "cudnn-fusion-2048": "--xla_gpu_cudnn_gemm_fusion_level=3",
            "tuned-unrolling-2048": "--xla_gpu_native_emitter_tune_unroll_factor_for_loops=true",
            "dot-merger-2048": "--xla_gpu_dot_merger_threshold_mb=512",
        }.items()
    ),
    *(
        Stage(name, speed, ONE, TINY, flags=flags)
        for name, flags in {
            "no-graphs-1": "--xla_gpu_enable_command_buffer=",
            "graphs-of-loops-1": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1",
            "graphs-of-copies-1": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL,+DYNAMIC_SLICE_COPY_FUSION "
            "--xla_gpu_graph_min_graph_size=1",
            "unrolled-graphs-1": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL,+DYNAMIC_SLICE_COPY_FUSION "
            "--xla_gpu_graph_min_graph_size=1 --xla_gpu_command_buffer_unroll_loops=true",
        }.items()
    ),
)
"""In the order in which they are measured."""


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
    given = parser().parse_args(words)
    names = [stage.name for stage in STAGES] + ["search"]
    if unknown := set(given.only or ()) - set(names):
        parser().error(f"--only {sorted(unknown)[0]}: must be among {', '.join(names)}")
    given.peers = {peer.partition("=")[0]: peer for peer in given.peers}
    if unknown := given.peers.keys() - PEERS.keys():
        parser().error(f"--peers {sorted(unknown)[0]}: must be {' or '.join(PEERS.values())}")
    for stage in STAGES:
        if stage.call is speed and stage.peer in given.peers:
            benchmark.arguments(stage.at(given.scale, given.peers, given.peer_python))
    if not (Path(given.peer_python).is_dir() or shutil.which(given.peer_python)):
        parser().error(f"--peer-python {given.peer_python}: is neither a folder nor a program")
    if given.search_code and not (given.search_code / "scripts" / "reproduce.py").is_file():
        parser().error(f"--search-code {given.search_code}: must be a checkout, which has scripts/reproduce.py")
    if given.commit == "?" and given.seconds:
        parser().error("--commit: must be given, since git does not tell it here")
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
