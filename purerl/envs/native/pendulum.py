"""Swinging a pendulum up and holding it upright, with the constants of Gymnasium's Pendulum-v1."""

import math

import jax.numpy as jnp

from purerl import draw
from purerl.envs.episodic import box, episodic
from purerl.spaces import Box
from purerl.types import Env


def pendulum(
    *,
    gravity: float = 10.0,
    mass: float = 1.0,
    length: float = 1.0,
    dt: float = 0.05,
    max_speed: float = 8.0,
    max_torque: float = 2.0,
    max_steps: int = 200,
) -> Env:
    """Makes Pendulum-v1.

    The reward is ``-(angle^2 + 0.1 * theta_dot^2 + 0.001 * torque^2)``; episodes never terminate.

    The action ``[1]`` is a torque in N m, clipped to ``max_torque``. The physical state is ``(theta, theta_dot)`` in
    rad and rad/s, with ``theta`` 0 upright; ``angle`` is ``theta`` wrapped to [-pi, pi). The reward depends on the
    state before the action. The observation ``[3]`` is ``(cos theta, sin theta, theta_dot)``.

    Args:
        gravity: Gravitational acceleration, in m/s^2.
        mass: Mass of the pendulum, in kg.
        length: Length of the pendulum, in m.
        dt: Seconds per step.
        max_speed: Angular velocities are clipped to this, in rad/s.
        max_torque: The largest torque, in N m.
        max_steps: Steps after which an episode is truncated.
    """

    def dynamics(physical, action):
        theta, theta_dot = physical
        torque = jnp.clip(action[0], -max_torque, max_torque)
        angle = (theta + math.pi) % (2 * math.pi) - math.pi
        reward = -(angle**2 + 0.1 * theta_dot**2 + 0.001 * torque**2)
        acceleration = 1.5 * gravity / length * jnp.sin(theta) + 3 / (mass * length**2) * torque
        theta_dot = jnp.clip(theta_dot + acceleration * dt, -max_speed, max_speed)
        return jnp.stack([theta + theta_dot * dt, theta_dot]), reward, False

    def observe(physical):
        theta, theta_dot = physical
        return jnp.stack([jnp.cos(theta), jnp.sin(theta), theta_dot])

    def initial(level):
        return jnp.stack([math.pi * level[0], level[1]])

    high = (1.0, 1.0, max_speed)
    return episodic(
        "Pendulum-v1",
        levels=lambda key, shape: draw.uniform(key, (*shape, 2), -1.0, 1.0),
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps,
        observation_space=box([-h for h in high], high),
        action_space=Box(-max_torque, max_torque, (1,), jnp.float32),
    )
