"""Films: sequences of pictures as a GIF, an MP4 or a page of HTML that needs nothing else."""

import base64
import contextlib
import html
import io
import itertools
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops

from purerl.errors import ConfigError
from purerl.store.writing import atomic

ENDINGS = ".gif", ".mp4", ".html"
FRAME = 1 / 50
"""The duration of the shortest frame of a GIF that every viewer shows for as long as the file says, in seconds."""
LONGEST = 65_535
"""The duration of the longest frame that a GIF can hold, in hundredths of a second."""
FOREVER = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
"""The block by which a GIF begins again when it ends."""


class Picture(NamedTuple):
    """A picture of a film.

    - ``frame``: uint8 ``[H, W, 3]``.
    - ``caption``: a line of text, which only films in HTML show.
    - ``stays``: for how many frames it stays.
    """

    frame: np.ndarray
    caption: str = ""
    stays: int = 1


def write(path: Path, pictures: Iterable[Picture], fps: float) -> int:
    """Writes pictures as a film, atomically.

    Args:
        path: The file, whose ending is the format: one of `ENDINGS`.
        pictures: At least one picture, all of one size. They are taken one by one, and not kept.
        fps: Frames a second.

    Returns:
        The number of pictures in the film.

    Raises:
        ConfigError: The ending is another one, nothing can encode MP4 here, or encoding fails.
    """
    check(path)
    with atomic(path) as temporary:
        if path.suffix == ".html":
            return _page(temporary, path.stem, pictures, fps)
        return (_gif if path.suffix == ".gif" else _mp4)(temporary, pictures, fps)


def check(path: Path) -> None:
    """Raises `ConfigError` for a film that cannot be written here, whatever it shows."""
    if path.suffix not in ENDINGS:
        raise ConfigError(f"out = {str(path)!r}: must end in {', '.join(ENDINGS)}")
    if path.suffix == ".mp4":
        _encoder()


def _gif(path: Path, pictures: Iterable[Picture], fps: float) -> int:
    """Writes an animated GIF, and returns its number of pictures.

    Each picture holds what changes from the one before, with a table of colours of its own. Beyond 50 frames a second,
    which viewers slow down, some are left out.
    """
    step, written, time = max(1, round(fps * FRAME)), 0, 0
    before: Image.Image | None = None
    with path.open("wb") as file:
        for picture in pictures:
            frames = -(-(time + picture.stays) // step) + -time // step  # every ``step``-th of all frames
            time += picture.stays
            if not frames:
                continue
            image = Image.fromarray(picture.frame)
            if before is None:
                file.write(b"GIF89a" + struct.pack("<HHBBB", *image.size, 0x70, 0, 0) + FOREVER)
            box = ImageChops.difference(image, before).getbbox() if before else (0, 0, *image.size)
            box = box or (0, 0, 1, 1)
            duration = min(frames * round(100 * step / fps), LONGEST)
            file.write(_part(image.crop(box), box[:2], duration))
            written, before = written + 1, image
        file.write(b";")
    return written


def _part(image: Image.Image, corner: tuple[int, ...], duration: int) -> bytes:
    """Encodes a part of a frame of a GIF.

    It is encoded as a GIF of its own, whose table of colours becomes the part's.

    Args:
        image: The part.
        corner: Its place on the frame.
        duration: For how long it stays, in hundredths of a second.
    """
    file = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(file, "GIF", interlace=False)
    whole = file.getvalue()
    colours = whole[10] & 7
    begin = 13 + 3 * 2 ** (colours + 1)  # the image follows the header and its colour table
    control = b"\x21\xf9\x04" + struct.pack("<BHBB", 1 << 2, duration, 0, 0)
    place = b"," + struct.pack("<HHHHB", *corner, *image.size, 0x80 | colours)
    return control + place + whole[13:begin] + whole[begin + 10 : -1]


def _mp4(path: Path, pictures: Iterable[Picture], fps: float) -> int:
    """Writes H.264 that every browser plays, and returns its number of pictures."""
    first, pictures = _begun(pictures)
    height, width = (size - size % 2 for size in first.frame.shape[:2])
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "pipe:0"]
    made = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path.absolute())]
    command, written = [_encoder(), "-v", "error", *given, *made], 0
    with tempfile.TemporaryFile() as errors:
        pipe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        with contextlib.suppress(BrokenPipeError), pipe as encoder:  # its error output is read below
            assert encoder.stdin is not None
            for picture in pictures:
                raw = np.ascontiguousarray(picture.frame[:height, :width]).tobytes()
                for _ in range(picture.stays):
                    encoder.stdin.write(raw)
                written += 1
        errors.seek(0)
        messages = errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
    if pipe.returncode:
        raise ConfigError(f"mp4: ffmpeg failed ({messages[-1][:200]}); .gif and .html need no ffmpeg")
    return written


def _encoder() -> str:
    """Returns the path of ffmpeg: that of the extra, or the system's. Raises `ConfigError` without either."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        path = shutil.which("ffmpeg")
    if path is None:
        raise ConfigError("mp4: needs ffmpeg; pip install 'purerl[film]', or write .gif or .html, which need none")
    return path


def _page(path: Path, title: str, pictures: Iterable[Picture], fps: float) -> int:
    """Writes a page that holds all frames and shows them, with a slider and a button; it loads nothing."""
    first, pictures = _begun(pictures)
    height, width = first.frame.shape[:2]
    words = {"WAIT": f"{1000 / fps:.1f}", "WIDTH": str(width), "HEIGHT": str(height), "TITLE": html.escape(title)}
    above, middle, below = re.split("@PICTURES@|@LINES@", PAGE)
    for name, text in words.items():
        above, below = (part.replace(f"@{name}@", text) for part in (above, below))
    lines = []
    with path.open("w", encoding="utf-8") as file:
        file.write(above)
        for picture in pictures:
            file.write(f'"{_png(picture.frame)}",\n')
            line = html.escape(picture.caption).replace("\\", "&#92;")
            lines.append(f'["{line}", {picture.stays}]')
        file.write(middle + ",\n".join(lines) + below)
    return len(lines)


def _begun(pictures: Iterable[Picture]) -> tuple[Picture, Iterable[Picture]]:
    """Returns the first picture, and all of them."""
    rest = iter(pictures)
    first = next(rest)
    return first, itertools.chain([first], rest)


def _png(frame: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(frame).quantize(128, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { margin: 0; padding: 1rem; font: 15px system-ui, sans-serif; background: #fff; color: #1c2733; }
figure { margin: 0 auto; max-width: 760px; } img { width: 100%; max-height: 76vh; object-fit: contain; }
div { display: flex; gap: .7rem; align-items: center; } input { flex: 1; } button { font: inherit; width: 4.5rem; }
figcaption { font-variant-numeric: tabular-nums; color: #56616d; min-height: 1.5em; }
</style></head><body><figure>
<img id="picture" alt="@TITLE@" width="@WIDTH@" height="@HEIGHT@">
<div><button id="play" type="button">pause</button>
<input id="place" type="range" min="0" value="0" aria-label="frame"></div>
<figcaption id="caption"></figcaption></figure>
<script>
"use strict";
const pictures = [@PICTURES@];
const lines = [@LINES@];
const at = (name) => document.getElementById(name);
let now = 0, left = 0, playing = true;
function show(place) {
  now = place % pictures.length;
  at("picture").src = pictures[now];
  [at("caption").innerHTML, left] = lines[now];
  at("place").value = now;
}
at("place").oninput = () => { playing = false; at("play").textContent = "play"; show(Number(at("place").value)); };
at("play").onclick = () => { playing = !playing; at("play").textContent = playing ? "pause" : "play"; };
at("place").max = pictures.length - 1;
setInterval(() => { if (playing && --left < 1) show(now + 1); }, @WAIT@);
show(0);
</script></body></html>
"""
