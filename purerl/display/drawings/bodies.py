"""Drawings of the bodies of brax: capsules, spheres and boxes, seen from the side or from above, without OpenGL."""

from typing import Any

import numpy as np

from purerl.display.drawings.sheet import BLUE, DIM, GREEN, LINE, ORANGE, RED, SKY, Sheet
from purerl.errors import ConfigError

PLANE, SPHERE, CAPSULE, BOX = 0, 2, 3, 6
"""MuJoCo's numbers of the kinds of geometry."""
COLOURS = (BLUE, ORANGE, GREEN, RED, SKY)
AZIMUTH, ELEVATION = np.deg2rad(90), np.deg2rad(12)
REACH = {"reacher": 0.55, "pusher": 2.4, "inverted_pendulum": 2.0}
"""Metres from the top to the bottom of the picture, by task; 2.6 for the others."""
FROM_ABOVE = ("reacher", "pusher")
"""Tasks in a plane, which are seen from above."""


def brax(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the bodies of a task of brax, which follows the first one. Raises `ConfigError` without brax.

    Tasks `FROM_ABOVE` are drawn around the origin instead.
    """
    _, backend, task = params["name"].split("/")
    try:
        from brax import envs
    except ImportError:
        raise ConfigError(f"env = {params['name']!r}: needs brax; pip install 'purerl[brax]'") from None
    model = envs.get_environment(task, backend=backend).sys.mj_model
    kinds, sizes, owners = (np.asarray(x) for x in (model.geom_type, model.geom_size, model.geom_bodyid))
    places, turns = np.asarray(model.geom_pos), np.asarray(model.geom_quat)
    eye = _eye(np.pi / 2 if task in FROM_ABOVE else ELEVATION)
    reach = REACH.get(task, 2.6)

    def draw(moment: Any, sheet: Sheet) -> None:
        links = moment.state.pipeline_state.x
        positions, rotations = np.asarray(links.pos, np.float64), np.asarray(links.rot, np.float64)
        focus = np.zeros(3) if task in FROM_ABOVE[:2] else np.array([*positions[0][:2], 0.3 * reach])
        unit = 1.0 / reach

        def project(point: np.ndarray) -> np.ndarray:
            across, up, depth = eye @ (point - focus)
            return np.array([sheet.width / 2 + unit * across, 0.5 - unit * up, depth])

        _ground(sheet, project, focus, task in FROM_ABOVE)
        shapes = []
        for kind, size, owner, place, turn in zip(kinds, sizes, owners, places, turns, strict=True):
            if kind == PLANE:
                continue
            link = int(owner) - 1
            centre, whole = place, turn
            if link >= 0:
                centre, whole = positions[link] + rotated(rotations[link], place), product(rotations[link], turn)
            along, half, radius = np.array([0.0, 0.0, 1.0]), 0.0, float(size[0])
            if kind == CAPSULE:
                half = float(size[1])
            elif kind == BOX:
                longest = int(np.argmax(size))
                along, half, radius = np.eye(3)[longest], float(size[longest]), float(np.median(size))
            way = half * rotated(whole, along)
            ends = [project(centre - way), project(centre + way)]
            colour = COLOURS[link % len(COLOURS)] if link >= 0 else DIM
            shapes.append((float(np.mean([end[2] for end in ends])), ends, unit * radius, colour))
        for _, ends, radius, colour in sorted(shapes, key=lambda shape: shape[0]):
            points = [(float(end[0]), float(end[1])) for end in ends]
            sheet.line(points, "#1c2733", 2 * radius + 0.012)
            sheet.line(points, colour, 2 * radius)

    return draw, 30.0, 1.5


def _eye(elevation: float) -> np.ndarray:
    """Returns the directions to the right, up, and towards the eye as rows; the eye looks along the y axis."""
    right = np.array([np.sin(AZIMUTH), -np.cos(AZIMUTH), 0.0])
    towards = np.array([np.cos(AZIMUTH) * np.cos(elevation), -np.sin(AZIMUTH) * np.cos(elevation), np.sin(elevation)])
    return np.stack([right, np.cross(towards, right), towards])


def _ground(sheet: Sheet, project: Any, focus: np.ndarray, above: bool) -> None:
    """Draws lines on the ground, one a metre, which show how far a body moves; none if it is seen from above."""
    if above:
        return
    for x in np.arange(np.floor(focus[0]) - 8, focus[0] + 9):
        ends = [project(np.array([x, focus[1] + side, 0.0])) for side in (-3, 3)]
        sheet.line([(float(end[0]), float(end[1])) for end in ends], LINE, 0.004, round_ends=False)
    for y in (-3, 0, 3):
        left, right = (project(np.array([focus[0] + side, focus[1] + y, 0.0])) for side in (-9, 9))
        sheet.line(
            [(float(left[0]), float(left[1])), (float(right[0]), float(right[1]))], LINE, 0.004, round_ends=False
        )


def product(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Computes Hamilton's product of two quaternions ``(w, x, y, z)``: the turn by ``other``, and then by ``one``."""
    w, v, t, u = one[0], one[1:], other[0], other[1:]
    return np.concatenate([[w * t - v @ u], w * u + t * v + np.cross(v, u)])


def rotated(turn: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Turns a point by a unit quaternion ``(w, x, y, z)``."""
    twice = 2 * np.cross(turn[1:], point)
    return point + turn[0] * twice + np.cross(turn[1:], twice)
