"""Boards of games as text, from what one player observes."""

from typing import Any

import jax
import numpy as np

from purerl import spaces
from purerl.display.drawings import boards

MARKS, PIECES = "XO", "PNBRQKpnbrqk"
"""The letters of the planes of a board: those of one's own stones and the other's, or of the kinds of pieces."""
LETTERS = {
    "TicTacToe-v0": MARKS,
    **{f"pgx/{name}": MARKS for name in ("tic_tac_toe", "connect_four", "othello", "hex", "go_9x9", "go_19x19")},
    **{f"pgx/{name}": PIECES for name in ("chess", "gardner_chess")},
}
"""The letters of the first planes of what players of games observe. Of other boards planes have letters from A on."""


def board(name: str, space: spaces.Space, obs: Any, legal: np.ndarray) -> str:
    """Formats what a player observes as text.

    A cell has the letter of its first plane. Where actions are cells, in rows from the top left, an empty one in which
    the player may move has the number of the action; where they are columns, numbers stand below these.

    Args:
        name: The name of the environment.
        space: The space of its observations.
        obs: An observation, as numpy.
        legal: Which actions the player may take, bool ``[A]``.

    Returns:
        Lines of text. An observation that is no board is a line of its numbers.
    """
    place = boards.image(space)
    if name == "TicTacToe-v0":
        planes = np.moveaxis(np.reshape(obs[:18], (2, 3, 3)), 0, -1)
    elif place is not None:
        leaf = np.asarray(jax.tree.leaves(obs)[place])
        planes = leaf.reshape(*leaf.shape[:2], -1)
    else:
        numbers = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(obs)]).astype(float)
        return " ".join(f"{x:.4g}" for x in numbers)
    letters = LETTERS.get(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    planes = planes[..., : len(letters)] > 0
    planes = planes & ~(planes.all(axis=(0, 1)) & (planes.shape[-1] > 2))  # what is everywhere is no piece
    rows, columns = planes.shape[:2]
    cells = [[letters[np.argmax(cell)] if cell.any() else "." for cell in row] for row in planes]
    of_cells = len(legal) in (rows * columns, rows * columns + 1)
    if of_cells:
        for number in np.flatnonzero(legal[: rows * columns]).tolist():
            row, column = divmod(number, columns)
            cells[row][column] = str(number) if cells[row][column] == "." else cells[row][column]
    if len(legal) == columns:
        cells.append([str(column) for column in range(columns)])
    width = max(len(cell) for row in cells for cell in row)
    return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in cells)


def numbers(legal: np.ndarray) -> str:
    """Formats the numbers of legal actions, neighbours as a range, such as ``0-3, 5``."""
    known = np.flatnonzero(legal)
    runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs if len(run))
