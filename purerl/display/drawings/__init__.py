"""Drawings of environments: functions that make a picture of a moment of play.

They draw arrays of numpy. Only libraries' own drawings, and the map of DeepSea's actions, compute with JAX.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from purerl import spaces
from purerl.catalogue import BRAX
from purerl.display.drawings import boards, bodies, control, grids, libraries, tables
from purerl.display.drawings.sheet import Sheet
from purerl.errors import ConfigError


class Moment(NamedTuple):
    """A moment of play, as numpy: a state, and the action that is taken in it.

    - ``state``: the state of the environment within all transforms.
    - ``obs``: what the policy sees, ``[...]``, of several agents ``[N, ...]``.
    - ``action``: likewise; None in the last state of an episode, in which no action is taken.
    - ``found``: what the search for the action found (`searches.beside`); (): there was none.
    """

    state: Any
    obs: Any
    action: Any
    found: Any = ()


class Drawing(NamedTuple):
    """A way to draw the moments of an environment.

    - ``draw``: ``draw(moment, sheet)`` draws onto a sheet of ``width`` by 1, or replaces it by a photo.
    - ``fps``: moments a second in a film.
    - ``width``: the width of the sheet, in units of its height.
    """

    draw: Callable[[Moment, Sheet], None]
    fps: float = 5.0
    width: float = 1.0

    def frame(self, moment: Moment, size: int) -> np.ndarray:
        """Draws the picture of a moment, uint8 ``[H, W, 3]`` with ``H`` = ``size``."""
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
"""The drawings of states, by the environment's name: functions of the environment's parameters that return the
fields of a `Drawing`."""
OF_FAMILIES = {"pgx": libraries.pgx, "jumanji": libraries.jumanji, "xminigrid": libraries.xminigrid}
"""The drawings of states of any environment of a family, likewise. MinAtar of pgx is drawn as a policy sees it."""


def drawing(name: str, params: dict[str, Any], space: spaces.Space) -> Drawing:
    """Makes the drawing of an environment.

    It draws the environment's states if this package or a library can. Otherwise it draws what a policy sees if that is
    a picture or a board: an array of two or three axes, alone or in a tree.

    Args:
        name: The name of the environment.
        params: The parameters of the environment.
        space: The space of the observations that its policies see.

    Raises:
        ConfigError: The environment cannot be drawn, or a library is missing.
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
        raise ConfigError(f"env = {name!r}: has no drawing, and its observations are not images of two or three axes")
    return Drawing(*boards.planes(place, space))


def innermost(env_state: Any) -> Any:
    """Returns the state within transforms and adapters: that of the physics, or of the library."""
    while True:
        inner = next((getattr(env_state, name) for name in ("inner", "physical") if hasattr(env_state, name)), None)
        if inner is None:
            return env_state
        env_state = inner
