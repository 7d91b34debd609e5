"""Returns that others have published in environments of `results.ROWS`: what docs/results.md sets beside ours."""

from typing import NamedTuple


class Published(NamedTuple):
    """A figure, and where it stands. "read off" is a figure taken from a picture by eye, within some 3 %."""

    who: str
    algorithm: str
    frames: str
    figure: str
    source: str


CLEANRL = "cleanrl, docs/rl-algorithms"
BLINES = "gymnax-blines, log of the agent's file"
PGX = "pgx, examples/minatar-ppo, read off; its rules differ a little"
RUN = "its own configuration, run for this table: 8 seeds, jax 0.10.2, gymnax 0.0.9"

PUBLISHED: dict[str, tuple[Published, ...]] = {
    "CartPole-v1": (
        Published("PureJaxRL", "PPO", "5e5", "500 from 2e5 on", "docs/cartpole_plot_seconds.png, read off"),
        Published("PureJaxRL", "PPO", "5e5", "496.4", RUN),
        Published("gymnax-blines", "PPO", "1.44e5", "500.0", BLINES),
        Published("Stoix", "PPO; DQN", "5e5", "500; 400", "docs/images, one seed, read off"),
        Published("Rejax", "PPO", "1e5", "430.5 (worst seed 298)", RUN),
        Published("Rejax", "DQN", "1e5", "447.3 (worst seed 202)", RUN),
        Published("Rejax", "PQN", "5.2e5", "450.9 (worst seed 326)", RUN),
        Published("cleanrl", "PPO; DQN; C51", "5e5", "490.0 +- 6.1; 498.4 +- 2.3; 491.1 +- 9.7", CLEANRL),
    ),
    "Acrobot-v1": (
        Published("gymnax-blines", "PPO", "5e5", "-78.9", BLINES),
        Published("cleanrl", "PPO; DQN; C51", "5e5", "-86.4 +- 1.3; -88.9 +- 1.6; -86.7 +- 2.2", CLEANRL),
    ),
    "MountainCar-v0": (
        Published("gymnax-blines", "PPO", "2.4e5", "-118.3", BLINES),
        Published("cleanrl", "PPO; DQN; C51", "5e5", "-200; -188.9 +- 11.8; -174.3 +- 36.4", CLEANRL),
    ),
    "Pendulum-v1": (Published("gymnax-blines", "PPO", "1e6", "-200.6", BLINES),),
    "Breakout-MinAtar": (
        Published("gymnax-blines", "PPO", "1e7", "22.9 (43 with step size 1e-3)", BLINES),
        Published("PureJaxRL", "PPO", "1e7", "about 40", "docs/minatar_plot_seconds.png, read off"),
        Published("pgx", "PPO, 4096 environments", "2e7", "50", PGX),
    ),
    "Asterix-MinAtar": (
        Published("gymnax-blines", "PPO", "1e7", "15.0 (17.8 with step size 1e-3)", BLINES),
        Published("pgx", "PPO, 4096 environments", "2e7", "22 (25 at its best)", PGX),
    ),
    "Freeway-MinAtar": (
        Published("gymnax-blines", "PPO", "1e7", "58.8", BLINES),
        Published("pgx", "PPO, 4096 environments", "2e7", "63.5", PGX),
    ),
    "SpaceInvaders-MinAtar": (
        Published("gymnax-blines", "PPO", "1e7", "131.6", BLINES),
        Published("PureJaxRL", "PPO", "1e7", "about 170", "examples/brax_minatar.ipynb, one seed, read off"),
        Published("pgx", "PPO, 4096 environments", "2e7", "144 (153 at its best)", PGX),
    ),
}
"""By environment."""
