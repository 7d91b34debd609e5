"""An underpowered car in a valley. Moore (1990), with the constants of Gymnasium's two MountainCar environments."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from purerl import draw
from purerl.envs.episodic import box, episodic
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env


def mountain_car(
    *,
    force: float = 0.001,
    gravity: float = 0.0025,
    min_position: float = -1.2,
    max_position: float = 0.6,
    max_speed: float = 0.07,
    goal_position: float = 0.5,
    goal_velocity: float = 0.0,
    max_steps: int = 200,
) -> Env:
    """Makes MountainCar-v0.

    The reward is -1 per step until the goal. Actions 0, 1, 2 push left, not at all, right.

    The observation ``[2]`` is ``(position, velocity)``; velocities and accelerations are per step.

    Args:
        force: Acceleration by a push.
        gravity: Acceleration by gravity on the steepest slope.
        min_position: The lower end of positions, at which the car stops.
        max_position: The upper end, to which positions are clipped.
        max_speed: Velocities are clipped to this speed.
        goal_position: The episode terminates at or beyond this position, with at least ``goal_velocity``.
        goal_velocity: The least velocity with which the episode terminates.
        max_steps: Steps after which an episode is truncated.
    """

    def push(action):
        return (jnp.clip(action, 0, 2) - 1) * force

    def reward(action, terminated):
        return -1.0

    valley = gravity, min_position, max_position, max_speed, goal_position, goal_velocity
    return _mountain_car("MountainCar-v0", push, reward, Discrete(3), *valley, max_steps)


def mountain_car_continuous(
    *,
    power: float = 0.0015,
    gravity: float = 0.0025,
    min_position: float = -1.2,
    max_position: float = 0.6,
    max_speed: float = 0.07,
    goal_position: float = 0.45,
    goal_velocity: float = 0.0,
    max_steps: int = 999,
) -> Env:
    """Makes MountainCarContinuous-v0.

    The reward is 100 at the goal, minus a tenth of the squared action at each step. The action ``[1]`` is clipped to
    [-1, 1] to move the car, but its cost is that of the unclipped action, as in Gymnasium. The observation ``[2]`` is
    ``(position, velocity)``; velocities and accelerations are per step.

    Args:
        power: Acceleration by an action of 1.
        gravity: As in `mountain_car`.
        min_position: As in `mountain_car`.
        max_position: As in `mountain_car`.
        max_speed: As in `mountain_car`.
        goal_position: As in `mountain_car`.
        goal_velocity: As in `mountain_car`.
        max_steps: As in `mountain_car`.
    """

    def push(action):
        return jnp.clip(action[0], -1.0, 1.0) * power

    def reward(action, terminated):
        return jnp.where(terminated, 100.0, 0.0) - 0.1 * action[0] ** 2

    valley = gravity, min_position, max_position, max_speed, goal_position, goal_velocity
    action_space = Box(-1.0, 1.0, (1,), jnp.float32)
    return _mountain_car("MountainCarContinuous-v0", push, reward, action_space, *valley, max_steps)


def _mountain_car(
    name: str,
    push: Callable[[Array], Array],
    reward: Callable[[Array, Array], Any],
    action_space: Space,
    gravity: float,
    min_position: float,
    max_position: float,
    max_speed: float,
    goal_position: float,
    goal_velocity: float,
    max_steps: int,
) -> Env:
    """Makes the environment that both share. The observation ``(position, velocity)`` is the physical state.

    ``push(action)`` is the acceleration by an action, ``reward(action, terminated)`` the reward of a step, and
    ``action_space`` the actions that ``push`` takes. The other parameters are those of `Env` and of `mountain_car`.
    """

    def dynamics(physical: Array, action: Array) -> tuple[Array, Array, Array]:
        position, velocity = physical
        velocity = velocity + push(action) - gravity * jnp.cos(3 * position)
        velocity = jnp.clip(velocity, -max_speed, max_speed)
        position = jnp.clip(position + velocity, min_position, max_position)
        velocity = jnp.where((position <= min_position) & (velocity < 0), 0.0, velocity)
        terminated = (position >= goal_position) & (velocity >= goal_velocity)
        return jnp.stack([position, velocity]), reward(action, terminated), terminated

    return episodic(
        name,
        levels=lambda key, shape: draw.uniform(key, shape, -0.6, -0.4),
        initial=lambda level: jnp.stack([level, jnp.zeros_like(level)]),
        dynamics=dynamics,
        observe=lambda physical: physical,
        time_limit=max_steps,
        observation_space=box((min_position, -max_speed), (max_position, max_speed)),
        action_space=action_space,
    )
