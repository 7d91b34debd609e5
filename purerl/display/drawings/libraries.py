"""Drawings that libraries make of the states of their own environments."""

import base64
import contextlib
import importlib.util
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from PIL import Image

from purerl.display.drawings.sheet import Sheet
from purerl.errors import ConfigError

LATIN = str.maketrans(
    dict(zip("歩香桂銀角飛金玉一二三四五六七八九", "PLNSBRGK123456789", strict=True))
    | {"と": "P⁺", "馬": "B⁺", "龍": "R⁺", "成": "+", "十": "10", "先": "", "後": "", "手": ""}
)
"""The letters of shogi's pieces in its Western notation, for fonts without Japanese."""
SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
"""Names of SVG, as the parser of XML writes them."""
INCHES = 6.0
"""The height of Jumanji's figures; the smaller it is, the larger are the letters."""
LIMITS = {"MMST-v0": (-0.05, 1.05)}
"""The limits of both axes, where a viewer of Jumanji does not show all that it draws."""


def pgx(params: dict[str, Any]) -> tuple:
    """Makes a drawing of a game of pgx from its own SVG. Raises `ConfigError` if resvg-py is missing."""
    if importlib.util.find_spec("resvg_py") is None:
        raise ConfigError(f"env = {params['name']!r}: needs resvg-py to be drawn; pip install 'purerl[pgx]'")

    def draw(moment: Any, sheet: Sheet) -> None:
        state = jax.tree.map(jnp.asarray, moment.state[0])
        sheet.photo(drawn(state.to_svg(color_theme="light").translate(LATIN), sheet.pixels))

    return draw, 2.0, 1.0


def drawn(svg: str, height: int) -> np.ndarray:
    """Draws an SVG on white, uint8 ``[height, W, 3]``.

    Its images, which must be SVG, become parts of it: resvg draws those in a tenth of the time.
    """
    import resvg_py

    root = ElementTree.fromstring(svg.replace("Courier", "DejaVu Sans Mono"))
    for image in root.iter(f"{SVG}image"):
        part = ElementTree.fromstring(base64.b64decode(image.attrib.pop(LINK).partition(",")[2]))
        box = part.get("viewBox", f"0 0 {part.get('width')} {part.get('height')}")
        image.tag, image.attrib = f"{SVG}svg", {**image.attrib, "viewBox": box, "overflow": "visible"}
        image.extend(part)
    fonts = Path(matplotlib.get_data_path(), "fonts", "ttf")  # text looks the same on every machine
    png = resvg_py.svg_to_bytes(
        svg_string=ElementTree.tostring(root, "unicode"),
        background="white",
        height=height,
        skip_system_fonts=True,
        font_files=[str(path) for path in fonts.glob("DejaVuSans*.ttf")],
        serif_family="DejaVu Sans",
    )
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@contextlib.contextmanager
def windowless() -> Iterator[None]:
    """Keeps pyplot from opening windows in a ``with`` block; afterwards it draws as it did before."""
    before = matplotlib.get_backend(auto_select=False)
    matplotlib.use("Agg")
    try:
        yield
    finally:
        if before:
            matplotlib.use(before, force=False)


def jumanji(params: dict[str, Any]) -> tuple:
    """Makes a drawing of an environment of Jumanji by its own viewer, without its window."""
    import jumanji
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    task = params["name"].partition("/")[2]
    environment = jumanji.make(task)

    @windowless()
    def draw(moment: Any, sheet: Sheet) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                environment.render(moment.state)
            except AttributeError:  # numpy arrays, which are faster, lack ``at``
                environment.render(jax.tree.map(jnp.asarray, moment.state))
        figure = pyplot.gcf()
        wide, high = figure.get_size_inches()
        if high != INCHES:
            figure.set_size_inches(INCHES * wide / high, INCHES)
            figure.dpi = sheet.pixels / INCHES
        if task in LIMITS:
            figure.gca().set(xlim=LIMITS[task], ylim=LIMITS[task])
        if figure.stale:
            figure.canvas.draw()
        assert isinstance(figure.canvas, FigureCanvasAgg)
        sheet.photo(np.asarray(figure.canvas.buffer_rgba())[..., :3])

    return draw, 5.0, 1.0


def xminigrid(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the whole grid, in which what the agent sees is brighter."""
    import xminigrid
    from xminigrid.rendering.rgb_render import render

    given = {name: value for name, value in params.items() if name == "view_size"}
    _, env_params = xminigrid.make(params["name"].partition("/")[2], **given)

    def draw(moment: Any, sheet: Sheet) -> None:
        state = moment.state.state
        tile = max(8, sheet.pixels // len(state.grid))
        sheet.photo(render(np.asarray(state.grid), state.agent, env_params.view_size, tile))

    return draw, 5.0, 1.0
