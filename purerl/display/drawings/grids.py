"""Drawings of worlds of cells: seas, corridors, rooms and mazes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from purerl.display.drawings.sheet import BLUE, DIM, GREEN, INK, LINE, ORANGE, PAPER, RED, SKY, YELLOW, Sheet, rgb

MARGIN = 0.03
STONE, SEEN = "#55606d", "#fbf3cf"
FOUR_WAYS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def _board(sheet: Sheet, rows: int, columns: int, colour: str = "#ffffff") -> Any:
    """Draws an empty grid as large as the sheet allows; returns ``at(row, column)``, a cell's middle, and its size."""
    size = min((1 - 2 * MARGIN) / rows, (sheet.width - 2 * MARGIN) / columns)
    left, top = (sheet.width - size * columns) / 2, (1 - size * rows) / 2
    sheet.box((left, top), (left + size * columns, top + size * rows), colour, LINE)
    for i in range(1, rows):
        sheet.line([(left, top + size * i), (left + size * columns, top + size * i)], LINE, 0.003, round_ends=False)
    for i in range(1, columns):
        sheet.line([(left + size * i, top), (left + size * i, top + size * rows)], LINE, 0.003, round_ends=False)
    return (lambda row, column: (left + size * (column + 0.5), top + size * (row + 0.5))), size


def _fill(sheet: Sheet, at: Any, size: float, row: int, column: int, colour: str) -> None:
    x, y = at(row, column)
    sheet.box((x - size / 2, y - size / 2), (x + size / 2, y + size / 2), colour)


def _mover(sheet: Sheet, at: Any, size: float, place: Any, way: tuple[int, int], colour: str = BLUE) -> None:
    """Draws an agent in a cell, and the way that it takes."""
    x, y = at(*place)
    sheet.disc((x, y), 0.33 * size, colour, INK)
    if any(way):
        sheet.arrow((x, y), (x + 0.75 * size * way[1], y + 0.75 * size * way[0]), INK, 0.09 * size)


def _whole(value: Any) -> int:
    return int(np.asarray(value).reshape(-1)[0])


STAYS = (0, 0)
"""The way of an agent that takes no action."""


def _way(moment: Any, ways: Sequence[tuple[int, int]], agent: int = 0) -> tuple[int, int]:
    """Returns the one of ``ways`` that the action of an agent names; `STAYS` in the last state."""
    return STAYS if moment.action is None else ways[int(np.ravel(moment.action)[agent]) % len(ways)]


def deep_sea(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the diver in a square of water, the treasure at its lower right, and an arrow.

    The arrow shows whether the action leads right or left.
    """
    native = params["name"] == "DeepSea-v0"
    depth, seed = int(params.get("depth", 10) if native else params.get("size", 8)), int(params.get("seed", 0))
    right = _map_of_actions(depth, seed) if native else None

    def draw(moment: Any, sheet: Sheet) -> None:
        row, column = min(_whole(moment.state.row), depth - 1), _whole(moment.state.column)
        at, size = _board(sheet, depth, depth, "#e4f1f8")
        _fill(sheet, at, size, depth - 1, depth - 1, YELLOW)
        table = right if right is not None else np.asarray(moment.state.action_mapping)
        ways = [(1, -1), (1, 1)] if int(table[row, column]) else [(1, 1), (1, -1)]
        _mover(sheet, at, size, (row, column), _way(moment, ways))

    return draw, 5.0, 1.0


def _map_of_actions(depth: int, seed: int) -> np.ndarray:
    """Returns the action that leads to the right from each cell of the native DeepSea."""
    import jax

    return np.asarray(jax.random.bernoulli(jax.random.key(seed), 0.5, (depth, depth))).astype(np.int32)


def noisy_grid(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the agent in its grid, and beside it of the screen of noise."""
    size_of = int(params.get("size", 9))

    def draw(moment: Any, sheet: Sheet) -> None:
        at, size = _board(sheet, size_of, size_of)
        _mover(sheet, at, size, np.asarray(moment.state.place), _way(moment, list(FOUR_WAYS.values())))
        screen = np.asarray(moment.state.screen, np.float64).reshape(-1, 1, 1)
        shades = np.broadcast_to(np.clip(255 * screen, 0, 255), (len(screen), 1, 3)).astype(np.uint8)
        sheet.cells(shades, (sheet.width - 0.16, 0.1), (sheet.width - 0.05, 0.9))

    return draw, 5.0, 1.4


def cue_corridor(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the corridor, the cell with the cue, and the action as an arrow up (1) or down (0)."""
    length, cue = int(params.get("length", 16)), int(params.get("cue_cell", 11))

    def draw(moment: Any, sheet: Sheet) -> None:
        at, size = _board(sheet, 1, length)
        _fill(sheet, at, size, 0, cue - 1, YELLOW)
        _fill(sheet, at, size, 0, length - 1, "#cfe9dd")
        cell = _whole(moment.state.cell)
        sheet.text((sheet.width / 2, 0.12), f"cue {'up' if _whole(moment.state.cue) else 'down'}", 0.12, DIM)
        x, y = at(0, cell)
        sheet.disc((x, y), 0.33 * size, BLUE, INK)
        if moment.action is not None:
            end = y - size if _whole(moment.action) else y + size
            sheet.arrow((x, y), (x, end), RED, 0.1 * size)

    return draw, 4.0, 5.0


def landmarks(params: dict[str, Any]) -> tuple:
    """Makes a drawing of two agents and the two landmarks that they are to stand on."""

    def draw(moment: Any, sheet: Sheet) -> None:
        at, size = _board(sheet, 5, 5)
        for mark in np.asarray(moment.state.landmarks):
            x, y = at(*mark)
            sheet.box((x - 0.36 * size, y - 0.36 * size), (x + 0.36 * size, y + 0.36 * size), YELLOW, ORANGE, 0.02)
        ways = [STAYS, *FOUR_WAYS.values()]
        for agent, place in enumerate(np.asarray(moment.state.agents)):
            _mover(sheet, at, size, place, _way(moment, ways, agent), (BLUE, RED)[agent])

    return draw, 3.0, 1.0


def coin_game(params: dict[str, Any]) -> tuple:
    """Makes a drawing of two agents and the coin of each, in its agent's colour.

    Agent 0 and its coin are at the left of their cells.
    """
    rows = 3

    def draw(moment: Any, sheet: Sheet) -> None:
        at, size = _board(sheet, rows, rows)
        agents, coins = (np.asarray(cells).reshape(-1) for cells in (moment.state.agents, moment.state.coins))
        ways = list(FOUR_WAYS.values())
        for i, (agent, coin, colour) in enumerate(zip(agents, coins, (BLUE, RED), strict=True)):
            side = size * (i - 0.5) / 2

            def within(row: int, column: int, side: float = side) -> tuple[float, float]:
                x, y = at(row, column)
                return x + side, y - size / 8

            x, y = at(*divmod(int(coin), rows))
            sheet.disc((x + side, y + 0.3 * size), 0.14 * size, YELLOW, INK)
            sheet.disc((x + side, y + 0.3 * size), 0.09 * size, colour)
            _mover(sheet, within, 0.6 * size, divmod(int(agent), rows), _way(moment, ways, i), colour)

    return draw, 3.0, 1.0


def _maze(walls: np.ndarray, ways: list[tuple[int, int]]) -> Any:
    """Makes a function that draws walls ``[rows, columns]``, the goal and the agent.

    States have the cells ``pos``, of the agent, and ``goal``.
    """

    def draw(moment: Any, sheet: Sheet) -> None:
        at, size = _board(sheet, walls.shape[0], walls.shape[1])
        for row, column in np.argwhere(walls):
            _fill(sheet, at, size, row, column, STONE)
        row, column = np.asarray(moment.state.goal)
        _fill(sheet, at, size, row, column, GREEN)
        _mover(sheet, at, size, np.asarray(moment.state.pos), _way(moment, ways))

    return draw


def maze(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the walls, the goal, the agent and its direction, and lightly the cells that it sees."""
    from purerl.envs.native.maze import WAYS, views

    view = int(params.get("view", 5))
    margin = view - 1

    def draw(moment: Any, sheet: Sheet) -> None:
        walls = np.asarray(moment.state.walls)
        stride = math.isqrt(walls.size)
        size_of = stride - 2 * margin
        goal, place = (np.divmod(_whole(cell), stride) for cell in (moment.state.goal, moment.state.place))
        direction = _whole(moment.state.direction)
        at, size = _board(sheet, size_of, size_of)
        for row, column in np.add(place, views(view)[direction]) - margin:
            if 0 <= row < size_of and 0 <= column < size_of:
                _fill(sheet, at, size, row, column, SEEN)
        for row, column in np.argwhere(walls.reshape(stride, stride)[margin:-margin, margin:-margin]):
            _fill(sheet, at, size, row, column, STONE)
        row, column = np.subtract(goal, margin)
        _fill(sheet, at, size, row, column, GREEN)
        _mover(sheet, at, size, np.subtract(place, margin), tuple(WAYS[direction]))

    return draw, 8.0, 1.0


CLOCKWISE = [FOUR_WAYS[name] for name in ("up", "right", "down", "left")]


def four_rooms(params: dict[str, Any]) -> tuple:
    """Makes a drawing of four rooms, the goal in one of them, and the agent."""
    return _maze(~np.asarray(_of_gymnax(params).env_map, bool), CLOCKWISE), 6.0, 1.0


def meta_maze(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the maze, the goal, which the agent does not see, and the agent."""
    return _maze(~np.asarray(_of_gymnax(params).env_map, bool), CLOCKWISE), 6.0, 1.0


def frozen_lake(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the ice, the holes, the goal, and the agent."""
    tiles = np.asarray(_of_gymnax(params).desc)
    ways = [FOUR_WAYS[name] for name in ("left", "down", "right", "up")]

    def draw(moment: Any, sheet: Sheet) -> None:
        from gymnax.environments.misc import frozen_lake

        at, size = _board(sheet, tiles.shape[0], tiles.shape[1], "#e9f4fa")
        for kind, colour in ((frozen_lake.HOLE, SKY), (frozen_lake.GOAL, GREEN)):
            for row, column in np.argwhere(tiles == int(kind)):
                _fill(sheet, at, size, row, column, colour)
        place = divmod(_whole(moment.state.position), tiles.shape[1])
        _mover(sheet, at, size, place, _way(moment, ways), ORANGE)

    return draw, 4.0, 1.0


def _of_gymnax(params: dict[str, Any]) -> Any:
    """Makes gymnax' environment, for the map that it has."""
    import gymnax

    arguments = {name: value for name, value in params.items() if name in ("maze_size", "rf_size", "map_name")}
    return gymnax.make(params["name"].removeprefix("gymnax/"), **arguments)[0]


def colours_of(planes: np.ndarray, palette: tuple[str, ...]) -> np.ndarray:
    """Converts planes ``[rows, columns, C]`` of 0 to 1 to colours, of which those of later planes lie on top.

    Returns:
        uint8 ``[rows, columns, 3]``.
    """
    picture = np.broadcast_to(rgb(PAPER).astype(np.float64), (*planes.shape[:2], 3)).copy()
    for i in range(planes.shape[-1]):
        amount = planes[..., i, None]
        picture = picture * (1 - amount) + rgb(palette[i % len(palette)]) * amount
    return np.clip(picture, 0, 255).astype(np.uint8)
