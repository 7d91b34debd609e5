"""Boards of games as text, from what one player observes."""

from typing import Any, NamedTuple

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
EMPTY = "."
"""The text of a cell without anything in it."""


class Cell(NamedTuple):
    """A cell of a board: its text, and the action of moving there; None: there is no such move."""

    text: str
    action: int | None = None


def cells(name: str, space: spaces.Space, obs: Any, legal: np.ndarray) -> list[list[Cell]]:
    """Returns the cells of a board in rows from the top; none of an observation that is no board.

    A cell has the letter of its first plane. Where actions are cells, in rows from the top left, an empty one in which
    the player may move has the number of the action; where they are columns, a row of their numbers stands below.

    Args:
        name: The name of the environment.
        space: The space of its observations.
        obs: An observation, as numpy.
        legal: Which actions the player may take, bool ``[A]``.
    """
    place = boards.image(space)
    if name == "TicTacToe-v0":
        planes = np.moveaxis(np.reshape(obs[:18], (2, 3, 3)), 0, -1)
    elif place is not None:
        leaf = np.asarray(jax.tree.leaves(obs)[place])
        planes = leaf.reshape(*leaf.shape[:2], -1)
    else:
        return []
    letters = LETTERS.get(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    planes = planes[..., : len(letters)] > 0
    planes = planes & ~(planes.all(axis=(0, 1)) & (planes.shape[-1] > 2))  # what is everywhere is no piece
    rows, columns = planes.shape[:2]
    found = [[Cell(letters[np.argmax(cell)] if cell.any() else EMPTY) for cell in row] for row in planes]
    if len(legal) in (rows * columns, rows * columns + 1):
        for number in np.flatnonzero(legal[: rows * columns]).tolist():
            row, column = divmod(number, columns)
            text = found[row][column].text
            found[row][column] = Cell(str(number) if text == EMPTY else text, number)
    if len(legal) == columns:
        found.append([Cell(str(column), column if legal[column] else None) for column in range(columns)])
    return found


def board(name: str, space: spaces.Space, obs: Any, legal: np.ndarray) -> str:
    """Formats what a player observes as lines of text; one line of its numbers if it is no board.

    Arguments are those of `cells`.
    """
    rows = cells(name, space, obs, legal)
    if not rows:
        values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(obs)]).astype(float)
        return " ".join(f"{x:.4g}" for x in values)
    width = max(len(cell.text) for row in rows for cell in row)
    return "\n".join(" ".join(cell.text.rjust(width) for cell in row) for row in rows)


def numbers(legal: np.ndarray) -> str:
    """Formats the numbers of legal actions, neighbours as a range, such as ``0-3, 5``."""
    known = np.flatnonzero(legal)
    runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs if len(run))
