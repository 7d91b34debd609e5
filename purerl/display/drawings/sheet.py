"""A sheet to draw on, in coordinates from (0, 0) at the top left to (width, 1)."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

SMOOTH = 2
"""Each pixel is the mean of this number of rows and columns of smaller ones, so that edges are smooth."""
WIDEST = 4.0
"""The width of the widest photo, in units of its height; a wider one becomes less high."""
PAPER, INK, DIM, LINE = "#f7f8fa", "#1c2733", "#6b7784", "#cfd6de"
BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, RED, BROWN = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#56b4e9", "#d55e00", "#8c6d46"),
)
"""Colours of Okabe & Ito (2008), which colour-blind people can tell apart, and brown."""
PALETTE = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, YELLOW, BROWN, "#4d4d4d", "#a6cee3")

Point = tuple[float, float]


class Sheet:
    """A sheet with what is drawn so far; lengths are fractions of its height."""

    def __init__(self, width: float, size: int):
        self.width, self._unit = width, size * SMOOTH
        self._image = Image.new("RGB", (max(2, round(width * size)) * SMOOTH, self._unit), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def line(self, points: list[Point], colour: str = INK, width: float = 0.008, round_ends: bool = True) -> None:
        """Draws a line through ``points``."""
        places = [self._at(point) for point in points]
        self._draw.line(places, colour, max(1, round(width * self._unit)), "curve")
        if round_ends:
            for point in (points[0], points[-1]):
                self.disc(point, width / 2, colour)

    def disc(self, centre: Point, radius: float, colour: str, edge: str | None = None) -> None:
        """Draws a disc."""
        (x, y), r = self._at(centre), radius * self._unit
        self._draw.ellipse([x - r, y - r, x + r, y + r], colour, edge, max(1, round(0.006 * self._unit)) if edge else 0)

    def box(self, low: Point, high: Point, colour: str | None, edge: str | None = None, corner: float = 0.0) -> None:
        """Draws a rectangle.

        Args:
            low: Its upper left corner.
            high: Its lower right corner.
            colour: The colour of its area (None: it is not filled).
            edge: The colour of its edge (None: it has none).
            corner: The radius of its corners.
        """
        width = max(1, round(0.005 * self._unit)) if edge else 0
        self._draw.rounded_rectangle([*self._at(low), *self._at(high)], corner * self._unit, colour, edge, width)

    def shape(self, points: list[Point], colour: str, edge: str | None = None) -> None:
        """Draws a polygon."""
        self._draw.polygon([self._at(point) for point in points], colour, edge)

    def arrow(self, tail: Point, head: Point, colour: str = RED, width: float = 0.012) -> None:
        """Draws an arrow, or nothing if it has no length."""
        way = np.subtract(head, tail)
        length = float(np.hypot(*way))
        if length < 1e-6:
            return
        along = way / length
        across, tip = np.array([-along[1], along[0]]), min(3.2 * width, length)
        neck = np.asarray(head) - tip * along
        self.line([tail, (float(neck[0]), float(neck[1]))], colour, width, round_ends=False)
        sides = [neck + 0.6 * tip * across, neck - 0.6 * tip * across]
        self.shape([head, *((float(x), float(y)) for x, y in sides)], colour)

    def text(self, place: Point, words: str, size: float = 0.05, colour: str = INK, anchor: str = "mm") -> None:
        """Writes a line of text.

        Args:
            place: Where it stands.
            words: The text.
            size: The size of the letters.
            colour: The colour of the letters.
            anchor: The point of the text that lies at ``place``, as Pillow names it (``mm``: its middle).
        """
        self._draw.text(self._at(place), words, colour, ImageFont.load_default(max(6.0, size * self._unit)), anchor)

    def cells(self, colours: np.ndarray, low: Point, high: Point) -> None:
        """Draws a grid of cells of ``colours`` uint8 ``[rows, columns, 3]`` between two corners."""
        rows, columns, _ = colours.shape
        left, top = self._at(low)
        right, bottom = self._at(high)
        size = max(1, round(right - left)), max(1, round(bottom - top))
        grid = Image.fromarray(np.ascontiguousarray(colours)).resize(size, Image.Resampling.NEAREST)
        self._image.paste(grid, (round(left), round(top)))

    @property
    def pixels(self) -> int:
        """The height of the sheet in pixels, before edges are smoothed."""
        return self._unit

    def photo(self, picture: np.ndarray) -> None:
        """Replaces the sheet by a picture, uint8 ``[H, W, 3]``, with its proportions up to a width of `WIDEST`."""
        height, width, _ = picture.shape
        self.width = min(WIDEST, width / height)
        size = max(2, round(self.width * self._unit / SMOOTH)) * SMOOTH, self._unit
        shown = ImageOps.pad(Image.fromarray(np.ascontiguousarray(picture)), size, Image.Resampling.LANCZOS, PAPER)
        self._image, self._draw = shown, ImageDraw.Draw(shown)

    def picture(self) -> np.ndarray:
        """Returns what was drawn, uint8 ``[H, W, 3]``."""
        width, height = self._image.size
        return np.asarray(self._image.resize((width // SMOOTH, height // SMOOTH), Image.Resampling.BOX))

    def _at(self, point: Point) -> Point:
        return float(point[0]) * self._unit, float(point[1]) * self._unit


def captioned(picture: np.ndarray, words: str, height: int) -> np.ndarray:
    """Puts a line of text below a picture, uint8 ``[H, W, 3]``, in a strip of ``height`` pixels.

    The letters become smaller if the line would be too wide.
    """
    width, size = picture.shape[1], 0.72 * height
    strip = Image.new("RGB", (width, height), PAPER)
    drawn = ImageDraw.Draw(strip)
    needed = drawn.textlength(words, ImageFont.load_default(size)) + height / 2
    font = ImageFont.load_default(max(6.0, size * min(1.0, width / needed)))
    drawn.text((height / 4, height / 2), words, INK, font, "lm")
    return np.concatenate([picture, np.asarray(strip)])


def rgb(colour: str) -> np.ndarray:
    """Converts a colour ``#rrggbb`` to uint8 ``[3]``."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.uint8)
