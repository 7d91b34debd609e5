"""Drawings of searches, which stand beside the drawing of the moment at whose action they arrived."""

from typing import Any

import numpy as np

from purerl.display.drawings.sheet import BLUE, DIM, INK, Sheet

WIDTH, ROWS = 0.62, 10
"""The width of a drawing in units of its height, and the largest number of actions that it has."""


def most_visited(found: Any) -> list[tuple[int, int]]:
    """Returns the actions that a search visited most, at most `ROWS`, each with its ``visits`` ``[A]`` there."""
    visits = np.asarray(found.visits, int)
    return [(i, int(visits[i])) for i in np.argsort(-visits, kind="stable")[:ROWS].tolist() if visits[i]]


def beside(frame: np.ndarray, found: Any) -> np.ndarray:
    """Draws a search to the right of a frame, uint8 ``[H, W, 3]``.

    It has the value of the root, and the actions that were visited most, each with its number, a bar and its visits.

    Args:
        frame: The frame.
        found: The search, with ``visits`` ``[A]`` and ``value``; (): there was none, and the place is left empty.
    """
    sheet = Sheet(WIDTH, frame.shape[0])
    if found:
        rows = most_visited(found)
        sheet.text((0.03, 0.07), f"value {float(found.value):+.2f}", 0.055, INK, "lm")
        sheet.text((WIDTH - 0.03, 0.07), "visits", 0.045, DIM, "rm")
        for place, (action, visits) in enumerate(rows):
            y = 0.17 + 0.8 / ROWS * place
            sheet.text((0.11, y), str(action), 0.05, INK, "rm")
            end = 0.14 + 0.34 * visits / rows[0][1]
            sheet.box((0.14, y - 0.022), (end, y + 0.022), BLUE)
            sheet.text((WIDTH - 0.03, y), str(visits), 0.045, DIM, "rm")
    return np.concatenate([frame, sheet.picture()], axis=1)
