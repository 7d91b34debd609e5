"""The workloads that have names: each is what follows ``purerl train``. Only the standard library is imported here."""

from typing import NamedTuple

PPO_CARTPOLE = "ppo --env CartPole-v1"
PPO_HOPPER = "ppo --env brax/positional/hopper --env-params resets=pool:256 --preset brax"
HOST_CARTPOLE = "ppo --env gymnasium/CartPole-v1 --num-envs 64"


class Workload(NamedTuple):
    """A training: its name in tables and files, and the words that follow ``purerl train``."""

    name: str
    words: str


class Sized(NamedTuple):
    """A training whose ``frames`` of an agent depend on the scale; ``quick`` are those at the quick one."""

    name: str
    words: str
    frames: int
    quick: int

    def at(self, quick: bool) -> Workload:
        """Returns the workload of a scale."""
        return Workload(self.name, f"{self.words} --total-steps {self.quick if quick else self.frames}")


NAMED = {
    "ppo-cartpole": (
        Sized("ppo-cartpole-1", PPO_CARTPOLE, 500_000, 100_000),
        Sized("ppo-cartpole-64", f"{PPO_CARTPOLE} --num-seeds 64", 32_768, 8_192),
        Sized("ppo-cartpole-2048", f"{PPO_CARTPOLE} --num-seeds 2048", 2_048, 1_024),
    ),
    "dqn": (Sized("dqn", "dqn --env CartPole-v1", 100_000, 20_000),),
    "sac": (Sized("sac", "sac --env Pendulum-v1", 20_000, 6_000),),
    "minatar": (Sized("minatar", "ppo --env Breakout-MinAtar --preset image", 32_768, 16_384),),
    "brax": (Sized("brax", PPO_HOPPER, 409_600, 40_960),),
    "host": (Sized("host", HOST_CARTPOLE, 491_520, 81_920),),
}
"""The workloads by the name that chooses them; `Sized.name` chooses one of several."""
EACH = {each.name: (each,) for several in NAMED.values() for each in several}
CHOICES = {**NAMED, **EACH}
"""All names that choose workloads."""
