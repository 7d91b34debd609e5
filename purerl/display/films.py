"""Films: pictures one after another as a GIF, an MP4 or a page of HTML that needs nothing else."""

import base64
import html
import io
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from purerl.errors import ConfigError
from purerl.store.atomic import atomic

ENDINGS = ".gif", ".mp4", ".html"
FRAME = 1 / 50
"""Seconds of the shortest frame of a GIF that every viewer shows as told."""
LONGEST = 655_350
"""Milliseconds of the longest frame that a GIF can hold."""


def write(path: Path, frames: Sequence[np.ndarray], captions: Sequence[str], fps: float) -> None:
    """Writes ``frames`` uint8 ``[H, W, 3]`` as the film that the end of ``path`` says, atomically.

    ``captions``, a line for each frame, are told in HTML alone. Raises `ConfigError` for another ending, and for MP4
    where nothing can encode it.
    """
    check(path)
    if path.suffix == ".html":
        body = page(path.stem, frames, captions, fps).encode()
    else:
        body = gif(frames, fps) if path.suffix == ".gif" else mp4(frames, fps)
    with atomic(path) as temporary:
        temporary.write_bytes(body)


def check(path: Path) -> None:
    """Raises `ConfigError` for a film that cannot be written here, whatever is in it."""
    if path.suffix not in ENDINGS:
        raise ConfigError(f"out = {str(path)!r}: must end in {', '.join(ENDINGS)}")
    if path.suffix == ".mp4":
        _encoder()


def gif(frames: Sequence[np.ndarray], fps: float) -> bytes:
    """An animated GIF with one palette for all frames. Beyond 50 frames a second, which viewers slow down, some are
    left out."""
    step = max(1, round(fps * FRAME))
    kept = [Image.fromarray(frame) for frame in frames[::step]]
    few = kept[:: max(1, len(kept) // 12)][:12]
    sheet = Image.new("RGB", (kept[0].width, sum(image.height for image in few)))
    for i, image in enumerate(few):
        sheet.paste(image, (0, i * image.height))
    palette = sheet.quantize(128, dither=Image.Dither.NONE)
    flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in kept]
    file = io.BytesIO()
    duration = min(round(100 * step / fps) * 10, LONGEST)
    flat[0].save(file, "GIF", save_all=True, append_images=flat[1:], duration=duration, loop=0, optimize=False)
    return file.getvalue()


def mp4(frames: Sequence[np.ndarray], fps: float) -> bytes:
    """H.264 that every browser plays. Raises `ConfigError` without an encoder, or if it fails."""
    height, width = (size - size % 2 for size in frames[0].shape[:2])
    raw = b"".join(np.ascontiguousarray(frame[:height, :width]).tobytes() for frame in frames)
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "pipe:0"]
    made = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "pipe:1"]
    done = subprocess.run([_encoder(), "-v", "error", *given, *made], input=raw, capture_output=True, check=False)
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing told"]
        raise ConfigError(f"mp4: ffmpeg cannot encode it ({told[-1][:200]}); .gif and .html need no ffmpeg")
    return done.stdout


def _encoder() -> str:
    """The path of ffmpeg: of the extra, or the system's. Raises `ConfigError` without either."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        found = shutil.which("ffmpeg")
    if found is None:
        raise ConfigError("mp4: needs ffmpeg; pip install 'purerl[film]', or write .gif or .html, which need none")
    return found


def page(title: str, frames: Sequence[np.ndarray], captions: Sequence[str], fps: float) -> str:
    """A page that holds all frames and shows them, with a slider and a button; it loads nothing."""
    pictures = ",\n".join(f'"{_png(frame)}"' for frame in frames)
    lines = ",\n".join('"' + html.escape(line).replace("\\", "&#92;") + '"' for line in captions)
    height, width = frames[0].shape[:2]
    words = {"PICTURES": pictures, "LINES": lines, "LAST": str(len(frames) - 1)}
    words |= {"WAIT": f"{1000 / fps:.1f}", "WIDTH": str(width), "HEIGHT": str(height), "TITLE": html.escape(title)}
    made = PAGE
    for name, text in words.items():
        made = made.replace(f"@{name}@", text)
    return made


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
<input id="place" type="range" min="0" max="@LAST@" value="0" aria-label="frame"></div>
<figcaption id="told"></figcaption></figure>
<script>
"use strict";
const pictures = [@PICTURES@];
const lines = [@LINES@];
const at = (name) => document.getElementById(name);
let now = 0, playing = true;
function show(place) {
  now = place % pictures.length;
  at("picture").src = pictures[now];
  at("told").innerHTML = lines[now];
  at("place").value = now;
}
at("place").oninput = () => { playing = false; at("play").textContent = "play"; show(Number(at("place").value)); };
at("play").onclick = () => { playing = !playing; at("play").textContent = playing ? "pause" : "play"; };
setInterval(() => { if (playing) show(now + 1); }, @WAIT@);
show(0);
</script></body></html>
"""
