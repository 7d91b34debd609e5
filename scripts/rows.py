"""The rows of the table of results (`results`): trainings that two cores can do in hours, at most."""

import importlib.util
from typing import NamedTuple

from purerl import catalogue


def learns_from_play(options: str) -> bool:
    """Returns whether a training with such options learns from recorded play alone."""
    return "--data" in options.split()


HOST_LIBRARIES = {"gymnasium": "mujoco", "envpool": "envpool"}
"""What rows of an environment of the host import; the tasks of Gymnasium here are MuJoCo's."""


class Row(NamedTuple):
    """A training: the algorithm, the environment, frames of each seed, and further options of ``purerl train``.

    Of an algorithm that learns from recorded play alone the frames are gradient steps.
    """

    algo: str
    env: str
    frames: float = 5e5
    options: str = ""
    seeds: int = 32
    before: tuple[str, ...] = ()
    """What ``purerl`` does first, whose files are among the options."""

    @property
    def name(self) -> str:
        """What tells the row from others: all but the number of seeds."""
        return " ".join(f"{self.algo} {self.env} {self.frames:.10g} {self.options}".split())

    @property
    def family(self) -> str:
        """What an environment of a library has before its first slash."""
        return self.env.partition("/")[0]

    @property
    def is_installed(self) -> bool:
        """Whether its library is."""
        host = HOST_LIBRARIES.get(self.family)
        return catalogue.is_installed(self.family) and (host is None or importlib.util.find_spec(host) is not None)

    @property
    def words(self) -> list[str]:
        """The training, without the name of the program."""
        frames = "" if self.frames == 5e5 else f" --total-steps {self.frames:.10g}"
        return f"train {self.algo} --env {self.env} --num-seeds {self.seeds}{frames} {self.options}".split()

    @property
    def command(self) -> str:
        """As a person types it."""
        commands = [f"purerl {words}" for words in (*self.before, " ".join(self.words))]
        return ", ".join(f"`{command}`" for command in commands) if self.before else commands[0]


DEMOS = "demos.safetensors"
RECORD_DEMOS = f"record scripts.players:expert --env CueCorridor-v0 --episodes 20 --out {DEMOS}"

MIX = "mix.safetensors"
RECORD_MIX = "record random=0.9 scripts.players:swing_up=0.1 --env Pendulum-v1 --episodes 100 --out " + MIX
"""Random play, and in a tenth of the episodes that of a program."""

SMALL = "--hidden-sizes 64 64 --batch-size 64 --learning-rate 1e-3 --actor-learning-rate 1e-3"
"""The defaults of these algorithms, written out as in the lines that are kept from before they were the defaults."""
TO_100 = "--v-min 0 --v-max 100"
WITHIN_100 = "--v-min -100 --v-max 0"
"""Rewards of -1 until the goal, discounted by 0.99, sum to no less than -100."""
TEAM = (
    "--num-envs 4 --num-steps 4 --num-updates 8 --unroll 3 --period 2 --capacity 10000 --warmup-steps 512 "
    "--memory none --no-last-action --hidden-sizes 64 --epsilon-end 1 --target-period 100 --learning-rate-decay 0"
)
ROWS_OF_AGENTS = "--num-envs 64 --num-steps 16 --learning-rate 5e-3"
TWO_ON_TWO = (
    "--env-params ways=1 --num-envs 16 --num-steps 1 --num-updates 1 --batch-size 256 --capacity 100000 "
    "--store-next-obs --initial-temperature 0.1 --gamma 0.9"
)
MINATAR = [f"{game}-MinAtar" for game in ("Breakout", "SpaceInvaders", "Freeway", "Asterix", "Seaquest")]
SPREAD = "--env-params max_steps=25 --num-envs 16 --num-steps 125 --learning-rate 2.5e-3 --gamma 0.9"
BATTLE = "--num-envs 32 --num-steps 64 --learning-rate 2e-3 --max-grad-norm 0.25 --hidden-sizes 128 128"
FLAT = "--preset minatar --env-params flatten=1 --hidden-sizes 64 64"
"""PureJaxRL's settings whole, without a convolution; they are also DiscoGen's."""
ROW_BY_ROW = "--memory none --burn-in 0 --num-envs 16 --num-steps 10 --num-updates 8 --batch-size 32 --period 5 "
ROW_BY_ROW += "--unroll 11 --capacity 48640 --warmup-steps 640 --target-period 50 --learning-rate 1e-3 "
ROW_BY_ROW += "--learning-rate-decay 0 --num-policies 8 --gamma-end 0.97 --hidden-sizes 64 64"
"""Of the agents that seek novelty in DeepSea, as in `exploration`."""
BOTH_NOVELTIES = "--embedding observations --episode-memory 10 --gamma-middle 0.99 --bandit-width 0.05"
PHYSICS = "--env-params resets=pool:256 --preset brax"
"""PureJaxRL's settings."""
SOFT_ROBOTS = "--env-params resets=pool:256 --num-envs 16 --num-steps 1 --num-updates 8 --batch-size 256 "
SOFT_ROBOTS += "--hidden-sizes 128 128 --normalize-obs --learning-rate 3e-4 --actor-learning-rate 3e-4 "
SOFT_ROBOTS += "--capacity 1000000 --warmup-steps 10000"
FAST_HOPPER = "--env-params resets=pool:256 --preset fast --v-min -20 --v-max 150"
"""Rewards of a step are from 0 to about 4, of which a discount of 0.97 sums 33."""
PONG = "--env-params atari=1 --torso nature --shared-torso --hidden-sizes 512 --activation relu --num-envs 8 "
PONG += "--num-steps 128 --num-minibatches 4 --learning-rate 2.5e-4 --clip-epsilon 0.1"
"""CleanRL's settings for Atari, without those of lives, of which Pong has none."""
ADAPTIVE = "--learning-rate-decay 0 --adapt-learning-rate 0.01"
SEA_OF_20 = "--env-params depth=20 --num-envs 16 --num-steps 60 --learning-rate 1e-3 --learning-rate-decay 0 "
SEA_OF_20 += "--entropy-coef 0.02 --hidden-sizes 64"
NEAR_TO_MIX = f"--data {MIX} --critic-cloning 0.1 --batch-size 256 --learning-rate 3e-4 --actor-learning-rate 3e-4 "
NEAR_TO_MIX += "--hidden-sizes 256 256"
FROM_PLAY = (
    ("bc", f"--data {MIX}"),
    ("td3-bc", f"--data {MIX}"),
    ("implicit-q", f"--data {MIX} --inverse-temperature 0.3"),
    ("cql", f"--data {MIX} --conservatism 1 --action-samples 4 --hidden-sizes 128 128"),
    ("rebrac", NEAR_TO_MIX),
)
"""Learning from recorded play alone: weights as in `offline`, where rewards are a tenth."""
ROWS = (
    Row("reinforce", "CartPole-v1"),
    Row("a2c", "CartPole-v1"),
    Row("impala", "CartPole-v1"),
    Row("ppo", "CartPole-v1"),
    Row("dpo", "CartPole-v1"),
    Row("appo", "CartPole-v1"),
    Row("pqn", "CartPole-v1"),
    Row("v-mpo", "CartPole-v1"),
    Row("vdn", "TwoStep-v0", 20_512, TEAM),
    Row("qmix", "TwoStep-v0", 20_512, TEAM + " --mixer-size 8"),
    Row("iql", "TwoStep-v0", 20_512, TEAM),
    Row("ippo", "Permutation-v0", 81_920, ROWS_OF_AGENTS),
    Row("mappo", "Permutation-v0", 81_920, ROWS_OF_AGENTS),
    Row("masac", "Landmarks-v0", 96_000, TWO_ON_TWO, 8),
    Row("dqn", "Catch-bsuite", 1e5, "", 8),
    Row("alphazero", "Catch-bsuite", 5e4, "", 8),
    Row("muzero", "Catch-bsuite", 1e5, "", 8),
    Row("muzero", "CartPole-v1", 2e5, "--v-min 0 --v-max 120", 8),
    Row("c51", "CartPole-v1", 2e5, TO_100, 16),
    Row("qr-dqn", "CartPole-v1", 2e5, "", 16),
    Row("iqn", "CartPole-v1", 2e5, "", 8),
    Row("rainbow", "CartPole-v1", 2e5, TO_100, 8),
    Row("apex", "CartPole-v1", 2e5, "", 16),
    Row("impala", "Acrobot-v1"),
    Row("a2c", "Acrobot-v1"),
    Row("sac-discrete", "CartPole-v1", 5e4, SMALL, 8),
    Row("mpo", "CartPole-v1", 5e4, "", 8),
    Row("ddpg", "Pendulum-v1", 5e4, SMALL, 8),
    Row("td3", "Pendulum-v1", 5e4, SMALL, 8),
    Row("sac", "Pendulum-v1", 5e4, "", 8),
    Row("tqc", "Pendulum-v1", 5e4, "", 8),
    Row("crossq", "Pendulum-v1", 5e4, "", 8),
    Row("td3", "Pendulum-v1", 2.5e5, "--preset fast --v-min -600 --v-max 0", 8),
    Row("sac", "Pendulum-v1", 2.5e5, "--preset fast --v-min -600 --v-max 20", 8),
    Row("mpo", "Pendulum-v1", 5e4, "", 8),
    Row("ppo", "Acrobot-v1"),
    Row("dpo", "Acrobot-v1"),
    *(Row(algo, "Acrobot-v1") for algo in ("pqn", "v-mpo")),
    *(Row(algo, "MountainCar-v0") for algo in ("ppo", "a2c", "impala", "pqn", "v-mpo")),
    *(Row("c51", env, 5e5, WITHIN_100, 8) for env in ("Acrobot-v1", "MountainCar-v0")),
    Row("ppo", "Pendulum-v1", 1e6, "--preset continuous", 8),
    Row("ppo", "Pendulum-v1", 1e6, f"--preset continuous {ADAPTIVE}", 8),
    Row("v-mpo", "Pendulum-v1", 1e6, "--preset continuous", 8),
    Row("dqn", "CartPole-v1", 2e5),
    Row("dqn", "Acrobot-v1", 5e5, "", 8),
    Row("dqn", "DiscountingChain-bsuite", 5e5, "", 8),
    Row("dqn", "CartPole-v1", 2e5, "--td-error munchausen --n-step 1", 8),
    Row("r2d2", "CartPole-v1", 2e5, "", 16),
    Row("disco", "Catch-bsuite", 58_000, "--preset catch", 4),
    Row("ngu", "CartPole-v1", 2e5, "", 8),
    Row("agent57", "CartPole-v1", 2e5, "", 8),
    Row("dqn", "MountainCar-v0", 5e5, "", 8),
    Row("ppo", "CartPole-v1", 5e5, "--memory gru", 16),
    Row("ppo", "CartPole-v1", 5e5, "--memory lstm --learning-rate 1e-3", 8),
    Row("ppo", "CartPole-v1", 5e5, "--preset memory --env-params hide_velocity=1", 16),
    Row("ppo", "MemoryChain-bsuite", 5e5, "--preset memory --env-params memory_length=20", 8),
    Row("r2d2", "MemoryChain-bsuite", 2e5, "--env-params memory_length=20", 8),
    Row("dqn", "FourRooms-misc", 5e5, "", 8),
    Row("ppo", "FourRooms-misc", 5e5, "", 8),
    Row("ngu", "DeepSea-v0", 48_640, f"--env-params depth=10 {ROW_BY_ROW} --novelty lifelong", 8),
    Row("agent57", "DeepSea-v0", 48_640, f"--env-params depth=10 {ROW_BY_ROW} {BOTH_NOVELTIES}", 8),
    Row("ppo", "DeepSea-v0", 240_000, SEA_OF_20, 8),
    Row("ppo", "DeepSea-v0", 240_000, f"{SEA_OF_20} --intrinsic rnd", 8),
    Row("r2d3", "CueCorridor-v0", 1e5, f"--demos {DEMOS}", 8, (RECORD_DEMOS,)),
    *(Row(algo, "Pendulum-v1", 1e4, options, 8, (RECORD_MIX,)) for algo, options in FROM_PLAY),
    *(Row(algo, "jaxmarl/MPE_simple_spread_v3", 1e6, SPREAD, 4) for algo in ("ippo", "mappo")),
    *(Row(algo, "jaxmarl/SMAX/3m", 204_800, BATTLE, 4) for algo in ("ippo", "mappo")),
    Row("ppo", "gymnasium/Hopper-v4", 1e6, "--preset continuous --learning-rate 3e-4", 3),
    Row("ppo", "brax/positional/hopper", 5e7, PHYSICS, 3),
    Row("ppo", "brax/positional/ant", 1e7, f"{PHYSICS} --hidden-sizes 64 64", 3),
    Row("ppo", "brax/positional/halfcheetah", 6e6, f"{PHYSICS} --hidden-sizes 64 64", 3),
    *(Row("sac", f"brax/positional/{robot}", 1e6, SOFT_ROBOTS, 3) for robot in ("hopper", "ant", "halfcheetah")),
    *(Row(algo, "brax/positional/hopper", 3e6, FAST_HOPPER, 1) for algo in ("td3", "sac")),
    *(Row("ppo", env, 1e7, FLAT, 5) for env in MINATAR),
    Row("ppo", "Breakout-MinAtar", 5e6, "--preset image", 2),
    *(Row(algo, env, 1e7, "--preset image", 5) for algo in ("impala", "pqn") for env in MINATAR),
    *(Row("dqn", env, 3.2e6, "--preset image", 5) for env in MINATAR),
    *(Row("rainbow", env, 3.2e6, "--preset image", 3) for env in MINATAR),
    Row("ppo", "envpool/Pong-v5", 1e7, PONG, 1),
)
"""In the order in which they are trained: what costs little first."""
