"""Sheets of levels: how each looks where it begins, and the scores of all of them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from purerl.display.plots import COLOURS, plain

COLUMNS = 6
SIZE = 240
"""The height of the picture of a level, in pixels."""


def figure(pictures: Sequence[np.ndarray], titles: Sequence[str], scores: np.ndarray, title: str = "") -> Figure:
    """Draws pictures of levels, and below them a histogram of scores.

    Args:
        pictures: Pictures of the shown levels, uint8 ``[H, W, 3]`` each.
        titles: The title above each picture.
        scores: ``[N]``, of all levels, which may be more than are shown.
        title: The title of the figure.
    """
    rows = -(-len(pictures) // COLUMNS)
    whole = Figure(figsize=(2.0 * COLUMNS, 2.2 * rows + 2.2), layout="constrained")
    above, below = whole.subfigures(2, 1, height_ratios=(2.2 * rows, 2.2), squeeze=False)[:, 0]
    panels = above.subplots(rows, COLUMNS, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, picture, words in zip(panels, pictures, titles, strict=False):
        panel.imshow(picture)
        panel.set_title(plain(words), fontsize=8)
    histogram = below.add_subplot(xlabel="score", ylabel="levels", title=f"scores of {len(scores):,} levels")
    histogram.hist(scores, bins=40, color=COLOURS[0])
    whole.suptitle(plain(title))
    return whole
