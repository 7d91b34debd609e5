"""Names that gymnax and brax register, and the messages for names that nobody has."""

from collections.abc import Iterable

from purerl.errors import ConfigError
from purerl.names import nearest

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
