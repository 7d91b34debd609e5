"""Acrobot: a two-link pendulum, actuated at the joint between the links, to be swung above a line.

Sutton and Barto (1998), section 11.3, with the constants of Gymnasium's Acrobot-v1.
"""

import math

import jax.numpy as jnp

from purerl import draw
from purerl.envs.episodic import box, episodic
from purerl.spaces import Discrete
from purerl.types import Env


def acrobot(
    *,
    gravity: float = 9.8,
    dt: float = 0.2,
    link_length_1: float = 1.0,
    link_mass_1: float = 1.0,
    link_mass_2: float = 1.0,
    link_com_pos_1: float = 0.5,
    link_com_pos_2: float = 0.5,
    link_moi: float = 1.0,
    max_torque: float = 1.0,
    max_vel_1: float = 4 * math.pi,
    max_vel_2: float = 9 * math.pi,
    max_steps: int = 500,
) -> Env:
    """Makes Acrobot-v1.

    The reward is -1 per step, and 0 on the step that lifts the tip above the line and terminates.

    Actions 0, 1, 2 are the torques ``-max_torque``, 0, ``max_torque``. The physical state is ``(theta_1, theta_2,
    velocity_1, velocity_2)`` in rad and rad/s, integrated by one fourth-order Runge-Kutta step; the observation ``[6]``
    is ``(cos theta_1, sin theta_1, cos theta_2, sin theta_2, velocity_1, velocity_2)``.

    Args:
        gravity: Gravitational acceleration, in m/s^2.
        dt: Seconds per step.
        link_length_1: Length of the first link, in m.
        link_mass_1: Mass of the first link, in kg.
        link_mass_2: Mass of the second link, in kg.
        link_com_pos_1: Distance of the first link's centre of mass from its joint, in m.
        link_com_pos_2: Distance of the second link's centre of mass from its joint, in m.
        link_moi: Moment of inertia of each link, in kg m^2.
        max_torque: The largest torque, in N m.
        max_vel_1: The first link's angular velocity is clipped to this, in rad/s.
        max_vel_2: The second link's angular velocity is clipped to this, in rad/s.
        max_steps: Steps after which an episode is truncated.
    """
    m1, m2, l1, c1, c2 = link_mass_1, link_mass_2, link_length_1, link_com_pos_1, link_com_pos_2

    def derivative(y, torque):
        theta_1, theta_2, velocity_1, velocity_2 = y
        sin_2, cos_2 = jnp.sin(theta_2), jnp.cos(theta_2)
        d1 = m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * cos_2) + 2 * link_moi
        d2 = m2 * (c2**2 + l1 * c2 * cos_2) + link_moi
        phi_2 = m2 * c2 * gravity * jnp.sin(theta_1 + theta_2)
        phi_1 = (
            -m2 * l1 * c2 * sin_2 * (velocity_2**2 + 2 * velocity_2 * velocity_1)
            + (m1 * c1 + m2 * l1) * gravity * jnp.sin(theta_1)
            + phi_2
        )
        pull = torque + d2 / d1 * phi_1 - m2 * l1 * c2 * velocity_1**2 * sin_2 - phi_2
        acceleration_2 = pull / (m2 * c2**2 + link_moi - d2**2 / d1)
        acceleration_1 = -(d2 * acceleration_2 + phi_1) / d1
        return velocity_1, velocity_2, acceleration_1, acceleration_2

    def dynamics(physical, action):
        torque = max_torque * (jnp.clip(action, 0, 2) - 1)
        y = tuple(physical)
        k1 = derivative(y, torque)
        k2 = derivative(_move(y, k1, dt / 2), torque)
        k3 = derivative(_move(y, k2, dt / 2), torque)
        k4 = derivative(_move(y, k3, dt), torque)
        slope = [a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
        theta_1, theta_2, velocity_1, velocity_2 = _move(y, slope, dt / 6)
        theta_1, theta_2 = _wrap(theta_1), _wrap(theta_2)
        velocity_1 = jnp.clip(velocity_1, -max_vel_1, max_vel_1)
        velocity_2 = jnp.clip(velocity_2, -max_vel_2, max_vel_2)
        terminated = -jnp.cos(theta_1) - jnp.cos(theta_1 + theta_2) > 1
        physical = jnp.stack([theta_1, theta_2, velocity_1, velocity_2])
        return physical, jnp.where(terminated, 0.0, -1.0), terminated

    def observe(physical):
        theta_1, theta_2, velocity_1, velocity_2 = physical
        return jnp.stack(
            [jnp.cos(theta_1), jnp.sin(theta_1), jnp.cos(theta_2), jnp.sin(theta_2), velocity_1, velocity_2]
        )

    high = (1.0, 1.0, 1.0, 1.0, max_vel_1, max_vel_2)
    return episodic(
        "Acrobot-v1",
        levels=lambda key, shape: draw.uniform(key, (*shape, 4), -0.1, 0.1),
        initial=lambda level: level,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps,
        observation_space=box([-h for h in high], high),
        action_space=Discrete(3),
    )


def _move(y, slope, dt):
    """Returns ``y + dt * slope``, element by element."""
    return tuple(a + dt * b for a, b in zip(y, slope, strict=True))


def _wrap(angle):
    """Returns the same angle in [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
