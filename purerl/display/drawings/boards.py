"""Drawings of boards: tic-tac-toe, and observations that are planes of cells, such as those of MinAtar and pgx."""

from typing import Any

import jax
import numpy as np

from purerl import spaces
from purerl.display.drawings.grids import colours_of
from purerl.display.drawings.sheet import BLUE, INK, LINE, PALETTE, RED, Sheet

OF_MINATAR = 30.0 / 4


def tic_tac_toe(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the marks, and faintly of the one that is made now, if any."""

    def draw(moment: Any, sheet: Sheet) -> None:
        for i in (1, 2):
            sheet.line([(0.08, 0.08 + 0.28 * i), (0.92, 0.08 + 0.28 * i)], LINE, 0.012)
            sheet.line([(0.08 + 0.28 * i, 0.08), (0.08 + 0.28 * i, 0.92)], LINE, 0.012)
        marks, mover = np.asarray(moment.state.marks, bool), int(moment.state.mover)
        for agent in (0, 1):
            for taken in np.flatnonzero(marks[agent]).tolist():
                _mark(sheet, taken, agent, (BLUE, RED)[agent])
        if mover < 2 and moment.action is not None:
            cell = int(np.ravel(moment.action)[mover])
            row, column = divmod(cell, 3)
            low = 0.1 + 0.28 * column, 0.1 + 0.28 * row
            sheet.box(low, (low[0] + 0.24, low[1] + 0.24), "#eef1f5")
            _mark(sheet, cell, mover, ("#8fc0de", "#eeb08a")[mover])

    return draw, 1.0, 1.0


def _mark(sheet: Sheet, cell: int, agent: int, colour: str) -> None:
    """Draws a cross of agent 0, or a ring of agent 1."""
    x, y = 0.22 + 0.28 * (cell % 3), 0.22 + 0.28 * (cell // 3)
    if agent == 0:
        sheet.line([(x - 0.07, y - 0.07), (x + 0.07, y + 0.07)], colour, 0.03)
        sheet.line([(x - 0.07, y + 0.07), (x + 0.07, y - 0.07)], colour, 0.03)
    else:
        sheet.disc((x, y), 0.09, colour)
        sheet.disc((x, y), 0.06, "#f7f8fa")


def image(space: spaces.Space) -> int | None:
    """Returns the index of the first leaf of an observation that is a picture or a board; None if there is none."""
    for i, leaf in enumerate(spaces.leaves(space)):
        if isinstance(leaf, spaces.Box) and spaces.is_picture(leaf.shape):
            return i
    return None


def planes(place: int, space: spaces.Space) -> tuple:
    """Makes a drawing of the newest frame of a leaf of the observations.

    A photo is drawn as it is. Otherwise each channel has its own colour, and its numbers are scaled by the range of
    those of it that were drawn so far. Of several channels one that is the same in all cells, such as whose turn it is,
    is left out, because it would cover the others. What several agents see is drawn side by side.

    Args:
        place: The index of the leaf.
        space: The space of the observations.
    """
    leaf = spaces.leaves(space)[place]
    rows, columns = leaf.shape[:2]
    channels = (leaf.shape[2] if len(leaf.shape) == 3 else 1) // leaf.num_frames
    low, high = np.full((2, channels), [[np.inf], [-np.inf]])

    def draw(moment: Any, sheet: Sheet) -> None:
        obs = np.asarray(jax.tree.leaves(moment.obs)[place], np.float64)
        views = obs.reshape(-1, rows, columns, obs.shape[-1] if len(leaf.shape) == 3 else 1)[..., -channels:]
        cells = 1, 2
        low[:] = np.minimum(low, views.min(axis=(0, *cells)))
        high[:] = np.maximum(high, views.max(axis=(0, *cells)))
        everywhere = (np.ptp(views, axis=cells, keepdims=True) == 0) & (channels > 1)
        scaled = np.where(everywhere, 0.0, (views - low) / np.maximum(high - low, 1e-9))
        width = sheet.width / len(views)
        for i, view in enumerate(views if _is_photo(leaf) else scaled):
            size = min(0.96 / rows, 0.96 * width / columns)
            left, top = i * width + (width - size * columns) / 2, (1 - size * rows) / 2
            corners = (left, top), (left + size * columns, top + size * rows)
            picture = view.astype(np.uint8) if _is_photo(leaf) else colours_of(view, PALETTE)
            sheet.cells(picture, *corners)
            sheet.box(*corners, None, INK)

    return draw, OF_MINATAR, columns / rows


def _is_photo(leaf: spaces.Box) -> bool:
    """Returns whether channels are red, green and blue."""
    return len(leaf.shape) == 3 and leaf.shape[2] == 3 * leaf.num_frames and leaf.dtype == np.uint8
