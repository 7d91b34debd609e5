"""Drawings of environments: a function of a moment of play that gives a picture. Nothing here computes with JAX, but
what libraries draw themselves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from purerl import spaces
from purerl.catalogue import BRAX
from purerl.display.drawings import boards, bodies, control, grids, libraries, tables
from purerl.display.drawings.sheet import Sheet
from purerl.errors import ConfigError


class Moment(NamedTuple):
    """What is before an action, and that action, as numpy: the state of the environment within all transforms, what the
    policy sees ``[...]``, of several agents ``[N, ...]``, and likewise the action; None in an episode's last state, in
    which none is taken."""

    state: Any
    obs: Any
    action: Any


class Drawing(NamedTuple):
    """``draw(moment, sheet)`` onto a sheet of ``width`` by 1, or one that becomes a photo, ``fps`` moments a second."""

    draw: Callable[[Moment, Sheet], None]
    fps: float = 5.0
    width: float = 1.0

    def frame(self, moment: Moment, size: int) -> np.ndarray:
        """The picture of a moment, uint8 ``[H, W, 3]`` with ``H`` = ``size``."""
        sheet = Sheet(self.width, size)
        self.draw(moment, sheet)
        return sheet.picture()


OF_STATES: dict[str, Callable[[dict[str, Any]], tuple[Callable[[Moment, Sheet], None], float, float]]] = {
    "CartPole-v1": control.cartpole,
    "Acrobot-v1": control.acrobot,
    "Pendulum-v1": control.pendulum,
    "MountainCar-v0": control.mountain_car,
    "MountainCarContinuous-v0": control.mountain_car,
    "PointRobot-misc": control.point_robot,
    "Reacher-misc": control.reacher,
    "Obstacles-v0": control.obstacles,
    "Swimmer-misc": control.swimmer,
    "DeepSea-v0": grids.deep_sea,
    "DeepSea-bsuite": grids.deep_sea,
    "NoisyGrid-v0": grids.noisy_grid,
    "CueCorridor-v0": grids.cue_corridor,
    "Maze-v0": grids.maze,
    "Landmarks-v0": grids.landmarks,
    "CoinGame-v0": grids.coin_game,
    "FourRooms-misc": grids.four_rooms,
    "MetaMaze-misc": grids.meta_maze,
    "FrozenLake-misc": grids.frozen_lake,
    "TicTacToe-v0": boards.tic_tac_toe,
    "KuhnPoker-v0": tables.kuhn_poker,
    "MatrixGame-v0": tables.matrix_game,
    "TwoStep-v0": tables.two_step,
    "Permutation-v0": tables.permutation,
    **{f"brax/{task}": bodies.brax for task in BRAX},
}
"""What draws the states of an environment, by its name: a function of the environment's parameters that gives the
fields of a `Drawing`."""
OF_FAMILIES = {"pgx": libraries.pgx, "jumanji": libraries.jumanji, "xminigrid": libraries.xminigrid}
"""What draws the states of any environment of a family, likewise; pgx' MinAtar is drawn as a policy sees it."""


def drawing(name: str, params: dict[str, Any], space: spaces.Space) -> Drawing:
    """The drawing of the environment called ``name`` with these parameters, whose policies see elements of ``space``.

    One of its states if there is one, and otherwise of what a policy sees, if that is a picture or a board: an array of
    two or three axes, alone or in a tree. Raises `ConfigError` for neither, and if a library is missing.
    """
    plain = name.removeprefix("gymnax/")
    family, _, rest = name.partition("/")
    key = f"brax/{rest.partition('/')[2]}" if family == "brax" else plain
    if key in OF_STATES:
        return Drawing(*OF_STATES[key]({**params, "name": name}))
    if family in OF_FAMILIES and not rest.startswith("minatar-"):
        return Drawing(*OF_FAMILIES[family]({**params, "name": name}))
    place = boards.image(space)
    if place is None:
        raise ConfigError(
            f"env = {name!r}: has no drawing, and what its policies see is no picture (two or three axes) to show"
        )
    return Drawing(*boards.planes(place, space))


def innermost(env_state: Any) -> Any:
    """The state within transforms and adapters: that of the physics, or of the library."""
    while True:
        inner = next((getattr(env_state, name) for name in ("inner", "physical") if hasattr(env_state, name)), None)
        if inner is None:
            return env_state
        env_state = inner
