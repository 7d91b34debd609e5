"""The names of all environments, where each native one is defined, and checks of parameters. Needs no JAX."""

import importlib.util
from collections.abc import Iterable

from purerl.errors import ConfigError
from purerl.names import nearest

NATIVE = {
    "CartPole-v1": "purerl.envs.native.cartpole:cartpole",
    "Acrobot-v1": "purerl.envs.native.acrobot:acrobot",
    "MountainCar-v0": "purerl.envs.native.mountain_car:mountain_car",
    "MountainCarContinuous-v0": "purerl.envs.native.mountain_car:mountain_car_continuous",
    "Pendulum-v1": "purerl.envs.native.pendulum:pendulum",
}
"""Native environments: the module and the function that makes each."""
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
    "probe/illegal-actions": "purerl.envs.probes:illegal_actions",
}
"""Probes: the module and the function that makes each."""
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
    "swimmer",
    "walker2d",
)
"""Tasks of brax, which each of its `BACKENDS` steps."""
EXTRAS = {"brax": "brax"}
"""Families of environments that an extra of this package installs: the module that must be there, by family."""


def families() -> dict[str, list[str]]:
    """The names of all distinct environments by family, native ones first.

    ``gymnax/NAME`` stands here only where the plain name is native; for the rest it means the same as the plain name.
    """
    shadowed = [f"gymnax/{name}" for name in GYMNAX if name in NATIVE]
    return {
        "native": list(NATIVE),
        "probe": list(PROBES),
        "gymnax": [*(name for name in GYMNAX if name not in NATIVE), *shadowed],
        "brax": [f"brax/{backend}/{task}" for backend in BACKENDS for task in BRAX],
    }


def names(family: str | None = None) -> list[str]:
    """Every environment that has a name, native ones first, or those of one of the `families`."""
    known = families()
    return known[family] if family else [name for each in known.values() for name in each]


def is_installed(family: str) -> bool:
    """Whether the library behind a family of environments can be imported; it is not imported."""
    return family not in EXTRAS or importlib.util.find_spec(EXTRAS[family]) is not None


def check_parameters(name: str, given: Iterable[str], valid: Iterable[str]) -> None:
    """Raises `ConfigError`, a line for each of the ``given`` parameters that environment ``name`` does not have."""
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
