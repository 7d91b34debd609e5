"""Drawings of classic control (carts, pendulums and a valley), and of gymnax' robots."""

import math
from typing import Any

import numpy as np

from purerl.display.drawings.sheet import BLUE, DIM, GREEN, INK, LINE, ORANGE, RED, SKY, Sheet


def _numbers(state: Any, *names: str) -> list[float]:
    """Returns the first elements of a native state, which is an array, or these fields of a library's state."""
    if all(hasattr(state, name) for name in names):
        return [float(getattr(state, name)) for name in names]
    return [float(x) for x in np.asarray(state).reshape(-1)[: len(names)]]


def _push(action: Any, num: int) -> float:
    """Returns the push of an action, -1 to 1: one of ``num`` discrete actions, or (0) a number; 0 without an action."""
    if action is None:
        return 0.0
    value = float(np.asarray(action).reshape(-1)[0])
    return (2 * value / (num - 1) - 1) if num else max(-1.0, min(1.0, value))


def cartpole(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the cart on its track, the pole, and the push."""
    limit, length = float(params.get("x_threshold", 2.4)), 2 * float(params.get("length", 0.5))

    def draw(moment: Any, sheet: Sheet) -> None:
        x, theta = _numbers(moment.state, "x", "x_dot", "theta")[::2]
        scale, ground = 0.42 * sheet.width / limit, 0.72
        at = sheet.width / 2 + scale * x
        sheet.line([(0.02, ground + 0.06), (sheet.width - 0.02, ground + 0.06)], LINE, 0.01)
        for side in (-limit, limit):
            edge = sheet.width / 2 + scale * side
            sheet.line([(edge, ground - 0.02), (edge, ground + 0.12)], DIM, 0.008)
        sheet.box((at - 0.11, ground - 0.06), (at + 0.11, ground + 0.04), INK, corner=0.015)
        for wheel in (-0.07, 0.07):
            sheet.disc((at + wheel, ground + 0.045), 0.025, DIM)
        reach = min(0.55, 0.55 * length)
        sheet.line(
            [(at, ground - 0.05), (at + reach * math.sin(theta), ground - 0.05 - reach * math.cos(theta))],
            ORANGE,
            0.035,
        )
        sheet.disc((at, ground - 0.05), 0.018, SKY)
        push = _push(moment.action, 2)
        if push:
            sheet.arrow((at + 0.13 * push, ground - 0.01), (at + 0.25 * push, ground - 0.01))

    return draw, 30.0, 1.6


def pendulum(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the pendulum, and of the torque as an arrow along an arc."""
    most = float(params.get("max_torque", 2.0))

    def draw(moment: Any, sheet: Sheet) -> None:
        (theta,) = _numbers(moment.state, "theta")
        tip = 0.5 + 0.36 * math.sin(theta), 0.5 - 0.36 * math.cos(theta)
        sheet.disc((0.5, 0.5), 0.4, "#eef1f5", LINE)
        sheet.line([(0.5, 0.5), tip], RED if math.cos(theta) < 0 else GREEN, 0.07)
        sheet.disc((0.5, 0.5), 0.02, INK)
        torque = 0.0 if moment.action is None else _push(np.asarray(moment.action) / most, 0)
        angles = np.linspace(0, torque * 2.2, 24)
        arc = [(0.5 + 0.12 * math.sin(a), 0.5 - 0.12 * math.cos(a)) for a in angles]
        if abs(torque) > 0.02:
            sheet.line(arc, BLUE, 0.014)
            sheet.arrow(arc[-2], (2.2 * arc[-1][0] - 1.2 * arc[-2][0], 2.2 * arc[-1][1] - 1.2 * arc[-2][1]), BLUE)

    return draw, 20.0, 1.0


def mountain_car(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the valley, the car in it, the flag, and the push."""
    low, high = float(params.get("min_position", -1.2)), float(params.get("max_position", 0.6))
    continuous = "Continuous" in params["name"]
    goal = float(params.get("goal_position", 0.45 if continuous else 0.5))

    def draw(moment: Any, sheet: Sheet) -> None:
        (position,) = _numbers(moment.state, "position")
        x = lambda p: (p - low) / (high - low) * sheet.width
        y = lambda p: 0.52 - 0.3 * math.sin(3 * p)
        ground = [(x(p), y(p)) for p in np.linspace(low, high, 120)]
        sheet.shape([*ground, (sheet.width, 1.0), (0.0, 1.0)], "#dfe7dc")
        sheet.line(ground, GREEN, 0.012)
        sheet.line([(x(goal), y(goal)), (x(goal), y(goal) - 0.16)], INK, 0.008)
        sheet.shape([(x(goal), y(goal) - 0.16), (x(goal) + 0.09, y(goal) - 0.13), (x(goal), y(goal) - 0.1)], RED)
        centre = x(position), y(position) - 0.04
        sheet.disc(centre, 0.045, BLUE, INK)
        push = _push(moment.action, 0 if continuous else 3)
        if push:
            sheet.arrow((centre[0] + 0.06 * push, centre[1]), (centre[0] + 0.2 * push, centre[1]))

    return draw, 30.0, 1.5


def acrobot(params: dict[str, Any]) -> tuple:
    """Makes a drawing of both links, the line to be reached, and the torque at the joint between them."""
    first = float(params.get("link_length_1", 1.0))

    def draw(moment: Any, sheet: Sheet) -> None:
        one, two = _numbers(moment.state, "joint_angle1", "joint_angle2")
        unit = 0.2
        joint = 0.5 + unit * first * math.sin(one), 0.52 + unit * first * math.cos(one)
        tip = joint[0] + unit * math.sin(one + two), joint[1] + unit * math.cos(one + two)
        sheet.line([(0.05, 0.52 - unit), (0.95, 0.52 - unit)], GREEN, 0.008)
        sheet.line([(0.5, 0.52), joint], BLUE, 0.045)
        sheet.line([joint, tip], ORANGE, 0.045)
        for place in ((0.5, 0.52), joint):
            sheet.disc(place, 0.02, INK)
        torque = _push(moment.action, 3)
        if torque:
            sheet.arrow((joint[0], joint[1] + 0.06), (joint[0] + 0.16 * torque, joint[1] + 0.06))

    return draw, 15.0, 1.0


def point_robot(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the point, its goal and the circle that goals lie on."""
    radius, near = float(params.get("circle_radius", 1.0)), float(params.get("goal_radius", 0.2))

    def draw(moment: Any, sheet: Sheet) -> None:
        at = lambda place: (0.5 + 0.4 * float(place[0]) / radius, 0.5 - 0.4 * float(place[1]) / radius)
        sheet.disc((0.5, 0.5), 0.4, "#eef1f5", LINE)
        sheet.disc(at(moment.state.goal), 0.4 * near / radius, "#cfe9dd", GREEN)
        here = at(moment.state.pos)
        sheet.disc(here, 0.025, BLUE)
        if moment.action is not None:
            push = np.asarray(moment.action).reshape(-1)
            sheet.arrow(here, (here[0] + 1.2 * float(push[0]), here[1] - 1.2 * float(push[1])))

    return draw, 15.0, 1.0


def obstacles(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the robot, its goal, the obstacles, and the way that it is about to take."""
    radius = float(params.get("radius", 0.02))

    def draw(moment: Any, sheet: Sheet) -> None:
        at = lambda place: (0.05 + 0.9 * float(place[0]), 0.95 - 0.9 * float(place[1]))
        sheet.box((0.05, 0.05), (0.95, 0.95), "#eef1f5", LINE)
        for middle, size in zip(moment.state.middles, moment.state.radii, strict=True):
            if size > 0:
                sheet.disc(at(middle), 0.9 * float(size), "#b9c2cc", INK)
        sheet.disc(at(moment.state.goal), 0.045, "#cfe9dd", GREEN)
        here = at(moment.state.place)
        sheet.disc(here, max(0.9 * radius, 0.012), BLUE)
        if moment.action is not None:
            velocity = np.clip(np.asarray(moment.action).reshape(-1), -1, 1)
            sheet.arrow(here, (here[0] + 0.12 * float(velocity[0]), here[1] - 0.12 * float(velocity[1])))

    return draw, 15.0, 1.0


def reacher(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the arm, whose links have length 1, and its goal."""

    def draw(moment: Any, sheet: Sheet) -> None:
        angles = np.cumsum(np.asarray(moment.state.angles).reshape(-1))
        unit = 0.46 / max(1, len(angles))
        at = lambda place: (0.5 + unit * float(place[0]), 0.5 - unit * float(place[1]))
        joints = np.concatenate([np.zeros((1, 2)), np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), axis=0)])
        sheet.disc((0.5, 0.5), 0.46, "#eef1f5", LINE)
        sheet.disc(at(np.asarray(moment.state.goal_xy).reshape(-1)), 0.03, GREEN)
        sheet.line([at(joint) for joint in joints], BLUE, 0.03)
        for joint in joints:
            sheet.disc(at(joint), 0.018, ORANGE)

    return draw, 15.0, 1.0


def swimmer(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the swimmer, its goal, and the urchins that it must avoid."""

    def draw(moment: Any, sheet: Sheet) -> None:
        state = moment.state
        at = lambda place: (0.5 + 0.45 * float(place[0]), 0.5 - 0.45 * float(place[1]))
        sheet.box((0.03, 0.03), (0.97, 0.97), "#e4f1f8", LINE)
        for urchin in np.asarray(state.urchin_xys).reshape(-1, 2):
            sheet.disc(at(urchin), 0.04, INK)
        sheet.disc(at(np.asarray(state.goal_xy).reshape(-1)), 0.035, GREEN)
        sheet.disc(at(np.asarray(state.xy).reshape(-1)), 0.035, RED)

    return draw, 15.0, 1.0
