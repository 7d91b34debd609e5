"""The names of all environments, the place where each native one is defined, and checks of parameters. Needs no JAX."""

import importlib.util
import math
from collections.abc import Iterable, Mapping
from typing import Any

from purerl.errors import ConfigError
from purerl.names import nearest

NATIVE = {
    "CartPole-v1": "purerl.envs.native.cartpole:cartpole",
    "Acrobot-v1": "purerl.envs.native.acrobot:acrobot",
    "MountainCar-v0": "purerl.envs.native.mountain_car:mountain_car",
    "MountainCarContinuous-v0": "purerl.envs.native.mountain_car:mountain_car_continuous",
    "Pendulum-v1": "purerl.envs.native.pendulum:pendulum",
    "Breakout-MinAtar": "purerl.envs.native.minatar.breakout:breakout",
    "Freeway-MinAtar": "purerl.envs.native.minatar.freeway:freeway",
    "Asterix-MinAtar": "purerl.envs.native.minatar.asterix:asterix",
    "SpaceInvaders-MinAtar": "purerl.envs.native.minatar.space_invaders:space_invaders",
    "Seaquest-MinAtar": "purerl.envs.native.minatar.seaquest:seaquest",
    "MatrixGame-v0": "purerl.envs.native.games.matrix_game:matrix_game",
    "TwoStep-v0": "purerl.envs.native.games.two_step:two_step",
    "Landmarks-v0": "purerl.envs.native.games.landmarks:landmarks",
    "Permutation-v0": "purerl.envs.native.games.permutation:permutation",
    "TicTacToe-v0": "purerl.envs.native.games.tic_tac_toe:tic_tac_toe",
    "KuhnPoker-v0": "purerl.envs.native.games.kuhn_poker:kuhn_poker",
    "CoinGame-v0": "purerl.envs.native.games.coin_game:coin_game",
    "MatrixShaping-v0": "purerl.envs.native.shaping:matrix_shaping",
    "DeepSea-v0": "purerl.envs.native.exploration.deep_sea:deep_sea",
    "Obstacles-v0": "purerl.envs.native.obstacles:obstacles",
    "NoisyGrid-v0": "purerl.envs.native.exploration.noisy_grid:noisy_grid",
    "CueCorridor-v0": "purerl.envs.native.exploration.cue_corridor:cue_corridor",
    "Maze-v0": "purerl.envs.native.maze:maze",
}
"""Native environments by name: the module and the function that makes each."""
PROBES = {
    "probe/constant-reward": "purerl.envs.probes:constant_reward",
    "probe/one-step": "purerl.envs.probes:one_step",
    "probe/obs-dependent-reward": "purerl.envs.probes:obs_dependent_reward",
    "probe/discount-two-steps": "purerl.envs.probes:discount_two_steps",
    "probe/action-dependent-reward": "purerl.envs.probes:action_dependent_reward",
    "probe/obs-action-match": "purerl.envs.probes:obs_action_match",
    "probe/target-action": "purerl.envs.probes:target_action",
    "probe/dict-obs": "purerl.envs.probes:dict_obs",
    "probe/multi-discrete": "purerl.envs.probes:multi_discrete",
    "probe/hybrid": "purerl.envs.probes:hybrid",
    "probe/illegal-actions": "purerl.envs.probes:illegal_actions",
}
"""Probes by name: the module and the function that makes each."""
GYMNAX = (
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Asterix-MinAtar",
    "Breakout-MinAtar",
    "Freeway-MinAtar",
    "Seaquest-MinAtar",
    "SpaceInvaders-MinAtar",
    "Catch-bsuite",
    "DeepSea-bsuite",
    "MemoryChain-bsuite",
    "UmbrellaChain-bsuite",
    "DiscountingChain-bsuite",
    "SimpleBandit-bsuite",
    "FourRooms-misc",
    "MetaMaze-misc",
    "PointRobot-misc",
    "BernoulliBandit-misc",
    "GaussianBandit-misc",
    "Reacher-misc",
    "Swimmer-misc",
    "Pong-misc",
    "FrozenLake-misc",
)
"""All of gymnax but MNISTBandit-bsuite, which downloads its data when it is made."""
BACKENDS = "spring", "positional", "generalized", "mjx"
BRAX = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_pendulum",
    "inverted_double_pendulum",
    "pusher",
    "reacher",
    "walker2d",
)
"""Tasks of brax, which each of its `BACKENDS` steps: all but swimmer, which calls what jax no longer has (0.14.2)."""
JUMANJI = (
    "BinPack-v2",
    "CVRP-v1",
    "Cleaner-v0",
    "Connector-v3",
    "FlatPack-v0",
    "Game2048-v1",
    "GraphColoring-v1",
    "JobShop-v0",
    "Knapsack-v1",
    "LevelBasedForaging-v0",
    "MMST-v0",
    "Maze-v0",
    "Minesweeper-v0",
    "MultiCVRP-v0",
    "PacMan-v1",
    "RobotWarehouse-v0",
    "RubiksCube-partly-scrambled-v0",
    "RubiksCube-v0",
    "SearchAndRescue-v0",
    "SlidingTilePuzzle-v0",
    "Snake-v1",
    "Sudoku-v0",
    "Sudoku-very-easy-v0",
    "TSP-v1",
    "Tetris-v0",
)
"""All of Jumanji but Sokoban-v0, which downloads its data when it is made."""
CRAFTAX = "Craftax-Classic-Symbolic-v1", "Craftax-Symbolic-v1"
"""The environments of Craftax that show symbols.

Those that show pixels read and write a pickle in Craftax' own folder.
"""
XMINIGRID = (
    "MiniGrid-BlockedUnlockPickUp",
    "MiniGrid-DoorKey-5x5",
    "MiniGrid-DoorKey-6x6",
    "MiniGrid-DoorKey-8x8",
    "MiniGrid-DoorKey-16x16",
    "MiniGrid-Empty-5x5",
    "MiniGrid-Empty-6x6",
    "MiniGrid-Empty-8x8",
    "MiniGrid-Empty-16x16",
    "MiniGrid-EmptyRandom-5x5",
    "MiniGrid-EmptyRandom-6x6",
    "MiniGrid-EmptyRandom-8x8",
    "MiniGrid-EmptyRandom-16x16",
    "MiniGrid-FourRooms",
    "MiniGrid-LockedRoom",
    "MiniGrid-MemoryS8",
    "MiniGrid-MemoryS16",
    "MiniGrid-MemoryS32",
    "MiniGrid-MemoryS64",
    "MiniGrid-MemoryS128",
    "MiniGrid-Playground",
    "MiniGrid-Unlock",
    "MiniGrid-UnlockPickUp",
)
"""xminigrid's ports of MiniGrid; the tasks of XLand-MiniGrid are downloaded."""
PGX = (
    "2048",
    "minatar-asterix",
    "minatar-breakout",
    "minatar-freeway",
    "minatar-seaquest",
    "minatar-space_invaders",
    "animal_shogi",
    "backgammon",
    "chess",
    "connect_four",
    "gardner_chess",
    "go_9x9",
    "go_19x19",
    "hex",
    "kuhn_poker",
    "leduc_holdem",
    "othello",
    "shogi",
    "sparrow_mahjong",
    "tic_tac_toe",
)
"""Games of pgx: for one player, and, from animal_shogi on, for several; bridge_bidding needs a download."""
PLAYGROUND = (
    "AcrobotSwingup",
    "AcrobotSwingupSparse",
    "BallInCup",
    "CartpoleBalance",
    "CartpoleBalanceSparse",
    "CartpoleSwingup",
    "CartpoleSwingupSparse",
    "CheetahRun",
    "FingerSpin",
    "FingerTurnEasy",
    "FingerTurnHard",
    "FishSwim",
    "HopperHop",
    "HopperStand",
    "HumanoidRun",
    "HumanoidStand",
    "HumanoidWalk",
    "PendulumSwingup",
    "PointMass",
    "ReacherEasy",
    "ReacherHard",
    "SwimmerSwimmer6",
    "WalkerRun",
    "WalkerStand",
    "WalkerWalk",
)
"""MuJoCo Playground's port of the DeepMind Control Suite; the models of its other tasks are downloaded."""
SMAX = (
    "3m",
    "2s3z",
    "25m",
    "3s5z",
    "8m",
    "5m_vs_6m",
    "10m_vs_11m",
    "27m_vs_30m",
    "3s5z_vs_3s6z",
    "3s_vs_5z",
    "6h_vs_8z",
    "smacv2_5_units",
    "smacv2_10_units",
    "smacv2_20_units",
)
"""Maps of JaxMARL's SMAX."""
KITCHENS = "cramped_room", "asymm_advantages", "coord_ring", "forced_coord", "counter_circuit"
"""Layouts of both of JaxMARL's Overcookeds."""
JAXMARL = (
    "MPE_simple_v3",
    "MPE_simple_adversary_v3",
    "MPE_simple_crypto_v3",
    "MPE_simple_push_v3",
    "MPE_simple_reference_v3",
    "MPE_simple_speaker_listener_v4",
    "MPE_simple_spread_v3",
    "MPE_simple_tag_v3",
    "MPE_simple_world_comm_v3",
    *(f"SMAX/{each}" for each in SMAX),
    *(f"overcooked/{each}" for each in KITCHENS),
    *(f"overcooked_v2/{each}" for each in KITCHENS),
    "hanabi",
    "coin_game",
    "jaxnav",
)
"""The environments of JaxMARL in which several agents all learn; in its MPE_simple_facmac the preys follow a rule."""
VECTORS = frozenset(
    [name for name in NATIVE if not name.endswith("-MinAtar") and name != "Maze-v0"]
    + [f"jaxmarl/{name}" for name in JAXMARL if name.startswith("MPE")]
)
"""Environments whose observations are vectors of a few numbers: native ones, and JaxMARL's MPE."""
EXTRAS = {
    "brax": "brax",
    "jumanji": "jumanji",
    "craftax": "craftax",
    "xminigrid": "xminigrid",
    "pgx": "pgx",
    "playground": "mujoco_playground",
    "jaxmarl": "jaxmarl",
}
"""Families of environments that an extra of this package installs, each with the module that must be importable."""

HOSTS = "gymnasium", "envpool", "pettingzoo"
"""Families of environments that the host steps."""
HELD_OUT = {"Maze-v0": "purerl.envs.native.mazes:held_out"}
"""Functions that return, by name, levels that no training uses, for the environments that have them."""

STEPS = "max_steps", "max_steps_in_episode"
"""Names of the parameters of environments that are numbers of steps."""
COUNTS = (*STEPS, "action_repeat", "max_episode_steps", "frame_stack")
"""Names of parameters that are whole numbers wherever they occur."""
TEXTS = "game", "opponent", "observation_mask", "randomise", "resets"
"""Names of the parameters that are text.

They are of MatrixGame-v0, of MatrixShaping-v0 and, the other three, of every environment.
"""
LARGEST = math.ldexp(2 - 2**-23, 127)
"""The largest float32."""


def families() -> dict[str, list[str]]:
    """Returns the names of all distinct environments by family, native ones first.

    ``gymnax/NAME`` stands here only where the plain name is native; for the rest it means the same as the plain name.
    """
    shadowed = [f"gymnax/{name}" for name in GYMNAX if name in NATIVE]
    return {
        "native": list(NATIVE),
        "probe": list(PROBES),
        "gymnax": [*(name for name in GYMNAX if name not in NATIVE), *shadowed],
        "brax": [f"brax/{backend}/{task}" for backend in BACKENDS for task in BRAX],
        "jumanji": [f"jumanji/{name}" for name in JUMANJI],
        "craftax": [f"craftax/{name}" for name in CRAFTAX],
        "xminigrid": [f"xminigrid/{name}" for name in XMINIGRID],
        "pgx": [f"pgx/{name}" for name in PGX],
        "playground": [f"playground/{name}" for name in PLAYGROUND],
        "jaxmarl": [f"jaxmarl/{name}" for name in JAXMARL],
    }


def names(family: str | None = None) -> list[str]:
    """Returns the names of all environments, native ones first, or those of one of the `families`."""
    known = families()
    return known[family] if family else [name for each in known.values() for name in each]


def is_installed(family: str) -> bool:
    """Returns whether the library behind a family of environments can be imported; it is not imported."""
    return family not in EXTRAS or importlib.util.find_spec(EXTRAS[family]) is not None


def check_parameters(name: str, given: Iterable[str], valid: Iterable[str]) -> None:
    """Raises `ConfigError` with a line for each of the ``given`` parameters that environment ``name`` does not have."""
    valid = sorted(valid)
    unknown = [parameter for parameter in given if parameter not in valid]
    if unknown:
        raise ConfigError(
            "\n".join(
                f"env = {name!r}: unknown parameter {parameter}; "
                + (f"nearest: {nearest(parameter, valid)}" if valid else "it has none")
                for parameter in unknown
            )
        )


def check_values(name: str, given: dict[str, Any]) -> None:
    """Raises `ConfigError` with a line for each number among ``given`` that no environment ``name`` can have.

    Numbers must be finite, and a number of steps (`STEPS`) must be whole and at least 1. But for environments of the
    host and a user's own (`is_elsewhere`), whole numbers must fit into int32 and others into float32. Values that are
    no Python numbers are not checked.
    """
    problems, free = [], is_elsewhere(name)
    for parameter, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, int) and not -(2**31) <= value < 2**31 and not free:
            problems.append(f"{parameter} = {value}: must lie in [{-(2**31)}, {2**31})")
        elif isinstance(value, float) and not abs(value) <= LARGEST and not (free and math.isfinite(value)):
            problems.append(f"{parameter} = {value}: must be finite in float32")
        elif parameter in STEPS and not (value >= 1 and (isinstance(value, int) or value.is_integer())):
            problems.append(f"{parameter} = {value}: must be a whole number >= 1")
    if problems:
        raise ConfigError("\n".join(f"env = {name!r}: {problem}" for problem in problems))


def is_elsewhere(name: str) -> bool:
    """Returns whether an environment is a user's own ``MODULE:FUNCTION``, or of a library that the host steps."""
    return ":" in name or name.partition("/")[0] in HOSTS


def fitted(name: str, given: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parameters of the environment ``name`` as its own are: a whole number where the default is one.

    Values that are no plain ones, such as tracers, stay as they are, and so do those whose default is no number.

    Raises:
        ConfigError: Something else is given where the default is a number; a line for each.
    """
    fit, problems = dict(given), []
    for parameter, value in given.items():
        default = defaults.get(parameter)
        if not isinstance(default, int | float) or not isinstance(value, _PLAIN):
            continue
        if isinstance(value, _NO_NUMBERS) or (isinstance(value, bool) and isinstance(default, float)):
            kind = "true or false" if isinstance(default, bool) else "a number"
            problems.append(f"env = {name!r}: {parameter} = {value!r}: must be {kind}, such as {default}")
        elif type(default) is int and (isinstance(value, bool) or (isinstance(value, float) and value.is_integer())):
            fit[parameter] = int(value)
    if problems:
        raise ConfigError("\n".join(problems))
    return fit


_NO_NUMBERS = str, list, tuple, dict, type(None)
_PLAIN = (*_NO_NUMBERS, bool, int, float)
