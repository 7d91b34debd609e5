"""What `on_gpu` measures: a table of stages, each a workload of ``scripts/benchmark.py`` or a check, and its words."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import benchmark
from workloads import checks

PEERS = {"rejax": "rejax", "purejaxrl": "purejaxrl=CHECKOUT"}
"""The peers that can take part, and how they are named on a command line."""


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
