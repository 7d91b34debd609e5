"""A robot among round obstacles: a continuous family of levels for curricula."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.episodic import box, episodic
from purerl.errors import ConfigError
from purerl.spaces import Box
from purerl.types import Array, Design, Env, Key

LARGEST = 0.15
"""Radius of the largest obstacle, in sides of the square."""
EDGE = 0.05
"""The least distance of start, goal and obstacles from the border."""
CLEAR = 0.05
"""The least room between the robot at its start, or at the goal, and every obstacle."""
NEAR = 0.05
"""The distance from the goal within which the robot must come."""
PROGRESS = 0.3
"""Reward for coming nearer by the side of the square: on the whole way less than 0.5."""
REACH = 0.1
"""The farthest that a change moves a point, in each direction."""
PARTS, RADII = 16, 4
"""How many values of a coordinate, and of a radius, a level can be built of."""


class Course(NamedTuple):
    """A level, in sides of the square.

    It has the robot's start and its goal ``[2]``, and the middles ``[N, 2]`` and the radii ``[N]`` of the obstacles.
    """

    start: Array
    goal: Array
    middles: Array
    radii: Array


class Physical(NamedTuple):
    """The place of the robot and its goal ``[2]``, and the middles ``[N, 2]`` and radii ``[N]`` of the obstacles."""

    place: Array
    goal: Array
    middles: Array
    radii: Array


def obstacles(
    *,
    obstacles: int = 8,
    beams: int = 16,
    speed: float = 0.5,
    dt: float = 0.1,
    radius: float = 0.02,
    max_steps: Any = 100,
) -> Env:
    """Makes Obstacles-v0: a robot finds its way to a goal among round obstacles in a square.

    The side of the square is the unit of length.

    The action ``[2]`` in [-1, 1] is a velocity, in units of ``speed``. At the goal the episode terminates and pays 1;
    where the robot touches an obstacle or the border it terminates without that. Each step also pays 0.3 times the
    distance by which the robot came nearer. The observation ``[beams + 2]`` is how far it is to the nearest obstacle or
    border in so many directions, counterclockwise from the right, and the way to the goal.

    A level is a `Course`. Drawn ones are uniform; an obstacle that covers the start or the goal is made so small that
    it leaves room there. An episode is solved if the goal is reached. A change moves the start, the goal or one
    obstacle.

    Args:
        obstacles: The number of obstacles.
        beams: The number of directions in which the robot sees.
        speed: Speed of the robot for an action of 1, in sides a second.
        dt: Seconds per step.
        radius: Radius of the robot, in sides.
        max_steps: Steps after which an episode is truncated.
    """
    for name, value in {"obstacles": obstacles, "beams": beams}.items():
        if not (isinstance(value, int) and value >= 1):
            raise ConfigError(f"env = 'Obstacles-v0': {name} = {value!r}: must be a whole number, at least 1")
    angles = 2 * math.pi * np.arange(beams, dtype=np.float32) / beams
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def levels(key: Key, shape: tuple[int, ...]) -> Course:
        numbers = draw.uniform(key, (*shape, 3 * obstacles + 4))
        points = EDGE + (1 - 2 * EDGE) * numbers[..., : 2 * obstacles + 4].reshape(*shape, obstacles + 2, 2)
        return course(points, LARGEST * numbers[..., 2 * obstacles + 4 :])

    def course(points: Array, radii: Array) -> Course:
        return Course(points[..., 0, :], points[..., 1, :], points[..., 2:, :], radii)

    def initial(level: Course) -> Physical:
        ends = jnp.stack([level.start, level.goal])
        room = jnp.min(_lengths(level.middles[:, None] - ends[None]), axis=1) - radius - CLEAR
        return Physical(level.start, level.goal, level.middles, jnp.clip(level.radii, 0.0, jnp.maximum(room, 0.0)))

    def dynamics(now: Physical, action: Array) -> tuple[Physical, Array, Array]:
        place = now.place + speed * dt * jnp.clip(action, -1.0, 1.0)
        reached = _lengths(place - now.goal) < NEAR
        apart = _lengths(place[None] - now.middles) - now.radii
        hit = jnp.any((apart < radius) & (now.radii > 0)) | jnp.any((place < radius) | (place > 1 - radius))
        nearer = _lengths(now.place - now.goal) - _lengths(place - now.goal)
        return now._replace(place=place), PROGRESS * nearer + (reached & ~hit), reached | hit

    def observe(now: Physical) -> Array:
        to = now.middles - now.place[None]
        along = jnp.sum(rays[:, None] * to[None], axis=-1)  # [beams, N]
        half = jnp.square(now.radii)[None] - (jnp.sum(jnp.square(to), axis=-1)[None] - jnp.square(along))
        meets = (half > 0) & (along > 0)
        obstacle = jnp.min(jnp.where(meets, along - jnp.sqrt(jnp.maximum(half, 0.0)), jnp.inf), axis=1)
        sides = jnp.where(rays > 0, (1 - now.place)[None], now.place[None]) / jnp.maximum(jnp.abs(rays), 1e-6)
        distance = jnp.clip(jnp.minimum(obstacle, jnp.min(sides, axis=1)), 0.0, math.sqrt(2))
        return jnp.concatenate([distance, now.goal - now.place])

    def change(key: Key, level: Course) -> Course:
        key_which, key_by = jax.random.split(key)
        points = jnp.concatenate([jnp.stack([level.start, level.goal]), level.middles])
        moved = jnp.arange(obstacles + 2) == jax.random.randint(key_which, (), 0, obstacles + 2)
        by = jax.random.uniform(key_by, (1, 2), minval=-REACH, maxval=REACH) * moved[:, None]
        return course(jnp.clip(points + by, EDGE, 1 - EDGE), level.radii)

    def build(key: Key, choices: Array) -> Course:
        ends = 2 * obstacles + 4
        points = EDGE + (1 - 2 * EDGE) * (choices[:ends].reshape(-1, 2) + 0.5) / PARTS
        return course(points, choices[ends:] * (LARGEST / (RADII - 1)))

    reach = speed * dt
    env = episodic(
        "Obstacles-v0",
        levels=levels,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps,
        observation_space=box(
            [0.0] * beams + [-1.0 - reach] * 2,
            [math.sqrt(2)] * beams + [1.0 + reach] * 2,
        ),
        action_space=Box(-1.0, 1.0, (2,), jnp.float32),
    )
    sizes = (PARTS,) * (2 * obstacles + 4) + (RADII,) * obstacles
    return env._replace(design=Design(change, sizes, build, solved=0.5), hidden=True)


def _lengths(vectors: Array) -> Array:
    """Returns the lengths of vectors ``[..., 2]``."""
    return jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1))
