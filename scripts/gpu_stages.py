"""What `on_gpu` measures: a table of stages, each a workload of ``purerl benchmark`` or of ``scripts/benchmark.py``,
which has the peers, or a check, and its words."""

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmark
from workloads import checks, named

PEERS = {"rejax": "rejax", "purejaxrl": "purejaxrl=CHECKOUT"}
"""The peers that can take part, and how they are named on a command line."""


def alone(words: Sequence[str]) -> dict[str, Any]:
    """Figures of the workload of ``purerl benchmark WORDS``. Raises `SystemExit` if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        code = subprocess.run([sys.executable, "-m", "purerl.cli", "benchmark", *words, "--out", str(path)]).returncode
        if code:
            raise SystemExit(code)
        (row,) = json.loads(path.read_text())["workloads"].values()
    return {"agents": row["agents"], **of_side(row), **spread(row)}


def spread(side: dict[str, Any]) -> dict[str, str]:
    """The time between the fastest and the slowest run of a side, over the median."""
    seconds = side["seconds"]
    return {"spread": f"{100 * (seconds['high'] - seconds['low']) / seconds['median']:.1f} %"}


def speed(words: Sequence[str]) -> dict[str, Any]:
    """Figures of a workload of ``scripts/benchmark.py``, of one row: those of purerl, and of the peer as ``peer``."""
    (row,) = benchmark.measured(benchmark.arguments(words))
    sides = {name: each for name, each in row.items() if isinstance(each, dict) and "frames_per_second" in each}
    if not sides:
        return row
    (_, ours), *others = sides.items()
    told = {"agents": row["agents"], **of_side(ours), **spread(ours)}
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
    alone: "purerl benchmark {}",
    speed: "python scripts/benchmark.py {}",
    checks.repeated: "purerl train {} --deterministic",
    checks.tests: "pytest {}",
}
"""What a stage does, as a person types it."""
ROUNDS = {"full": "--processes 1 --rounds 3 --warmups 2", "tiny": "--processes 1 --rounds 1 --warmups 1"}


class Stage(NamedTuple):
    """``call(words)`` returns the figures of its line, within ``seconds``.

    ``tiny`` are the words at that scale. ``flags`` are XLA's and for GPUs; the scale tiny has others in their place.
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
        if self.call in (alone, speed):
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


def cartpole(agents: int, total_steps: int, more: str = "") -> str:
    """The word of ``purerl benchmark`` for PPO on CartPole-v1, of those three above."""
    return shlex.quote(f"{named.PPO_CARTPOLE} --num-seeds {agents} --total-steps {total_steps} {more}".strip())


ALL_ALONE, ONE_ALONE, TINY_ALONE = cartpole(2048, 65536), cartpole(1, 131072), cartpole(2, 2048)
BASE = (Stage("base-2048", alone, ALL_ALONE, TINY_ALONE, 50), Stage("base-1", alone, ONE_ALONE, TINY_ALONE, 50))
HALF = "--precision bfloat16"
REPLAY_TINY = "--num-envs 4 --num-steps 8 --warmup-steps 128 --capacity 256 --batch-size 4"
R2D2, R2D2_TINY = (
    "r2d2 --env CartPole-v1 --total-steps 20000",
    f"r2d2 --env CartPole-v1 --total-steps 512 {REPLAY_TINY}",
)
QMIX, QMIX_TINY = "qmix --env TwoStep-v0 --total-steps 20000", f"qmix --env TwoStep-v0 --total-steps 512 {REPLAY_TINY}"
IMPALA, IMPALA_TINY = "impala --env CartPole-v1 --total-steps 65536", "impala --env CartPole-v1 --total-steps 1024"
GRU = f"{named.PPO_CARTPOLE} --memory gru --total-steps 65536"
GRU_TINY = f"{named.PPO_CARTPOLE} --memory gru --num-steps 16 --total-steps 512"
DQN, DQN_TINY = "dqn-cartpole --total-steps 20000", "dqn-cartpole --agents 2 --total-steps 1500"
SAC_TINY = "sac-pendulum --agents 2 --total-steps 1100"
IMAGES = "--preset image --env Breakout-MinAtar"
PHYSICS = "--warmups 1 --rounds 1 --agents 1"
UNTIL_TINY = "algorithms ppo --total-steps 2048 --until 20"
CLOSED = "tests/algos/test_conformance.py::test_truncation_in_closed_form"
SEEDS = "--env CartPole-v1 --eval-episodes 2 --total-steps"
SHARDS = "ppo --num-envs 16 --shards 4 --exact"


def of_agents(name: str, words: str, agents: int, tiny: str, seconds: int = 60) -> Stage:
    """A stage of so many agents, at the scale tiny of two, by ``purerl benchmark``."""
    return Stage(name, alone, *(shlex.quote(f"{x} --num-seeds {n}") for x, n in ((words, agents), (tiny, 2))), seconds)


STAGES = (
    *BASE,
    Stage("bfloat16-2048", alone, cartpole(2048, 65536, HALF), cartpole(2, 2048, HALF)),
    Stage("bfloat16-1", alone, cartpole(1, 131072, HALF), cartpole(2, 2048, HALF)),
    Stage("ppo-1-beside-purejaxrl", speed, ONE, TINY, 90, peer="purejaxrl"),
    Stage("ppo-64-beside-purejaxrl", speed, f"{ONE} --agents 64", TINY, 90, peer="purejaxrl"),
    Stage("ppo-2048-beside-purejaxrl", speed, PPO, TINY, 110, peer="purejaxrl"),
    Stage("profile-2048", speed, "profile --agents 2048", "profile --agents 2 --total-steps 2048", 90),
    Stage("ppo-16384", alone, cartpole(16384, 16384), TINY_ALONE, 80),
    Stage("ppo-2048-lanes-256", alone, cartpole(2048, 65536, "--lanes 256"), cartpole(2, 2048, "--lanes 1")),
    Stage("ppo-2048-lanes-512", alone, cartpole(2048, 65536, "--lanes 512"), cartpole(2, 2048, "--lanes 1")),
    Stage("ppo-8192", alone, cartpole(8192, 16384), TINY_ALONE),
    Stage("ppo-4096", alone, cartpole(4096, 32768), TINY_ALONE),
    Stage("ppo-1024", alone, cartpole(1024, 65536), TINY_ALONE),
    Stage("ppo-256", alone, cartpole(256, 65536), TINY_ALONE),
    Stage("dqn-512", speed, f"{DQN} --agents 512", DQN_TINY, 120),
    Stage("dqn-1-beside-rejax", speed, "dqn-cartpole --total-steps 20000", DQN_TINY, 120, peer="rejax"),
    Stage("dqn-1", speed, DQN, DQN_TINY, 90),
    Stage("dqn-64-beside-rejax", speed, f"{DQN} --agents 64", DQN_TINY, 120, peer="rejax"),
    Stage("dqn-512-beside-rejax", speed, "dqn-cartpole --agents 512 --total-steps 5000", DQN_TINY, 120, peer="rejax"),
    of_agents("impala-2048", IMPALA, 2048, IMPALA_TINY),
    of_agents("impala-1", IMPALA, 1, IMPALA_TINY),
    Stage("sac-64", speed, "sac-pendulum --agents 64", SAC_TINY, 90),
    Stage("sac-1", speed, "sac-pendulum --agents 1", SAC_TINY, 90),
    of_agents("r2d2-64", R2D2, 64, R2D2_TINY, 120),
    of_agents("r2d2-1", R2D2, 1, R2D2_TINY, 90),
    of_agents("qmix-64", QMIX, 64, QMIX_TINY, 90),
    of_agents("qmix-1", QMIX, 1, QMIX_TINY, 90),
    of_agents("ppo-gru-512", GRU, 512, GRU_TINY, 120),
    of_agents("ppo-gru-1", GRU, 1, GRU_TINY, 90),
    of_agents(
        "minatar-ppo-64", f"ppo {IMAGES} --total-steps 131072", 64, f"ppo {IMAGES} --num-steps 4 --total-steps 1024", 90
    ),
    of_agents(
        "minatar-pqn-64", f"pqn {IMAGES} --total-steps 131072", 64, f"pqn {IMAGES} --num-steps 4 --total-steps 1024", 90
    ),
    of_agents(
        "minatar-rainbow-8",
        f"rainbow {IMAGES} --total-steps 30000",
        8,
        f"rainbow --env CartPole-v1 --hidden-sizes 8 {REPLAY_TINY} --total-steps 512",
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
        Stage(name, alone, ALL_ALONE, TINY_ALONE, flags=flags)
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
        Stage(name, alone, ONE_ALONE, TINY_ALONE, flags=flags)
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
