"""Balancing a pole on a cart. Barto, Sutton and Anderson (1983), with the constants of Gymnasium's CartPole-v1."""

import math

import jax.numpy as jnp

from purerl import draw
from purerl.envs.episodic import box, episodic
from purerl.errors import ConfigError
from purerl.spaces import Discrete
from purerl.types import Env


def cartpole(
    *,
    gravity: float = 9.8,
    masscart: float = 1.0,
    masspole: float = 0.1,
    length: float = 0.5,
    force_mag: float = 10.0,
    tau: float = 0.02,
    theta_threshold: float = math.radians(12),
    x_threshold: float = 2.4,
    max_steps: int = 500,
    hide_velocity: int = 0,
) -> Env:
    """Makes CartPole-v1.

    The reward is 1 per step, including the step on which the pole falls or the cart leaves the track. Action 0 pushes
    left, 1 right. The physical state ``(x, x_dot, theta, theta_dot)``, in m, m/s, rad and rad/s, is the observation
    ``[4]``; it is integrated by explicit Euler steps.

    Args:
        gravity: Gravitational acceleration, in m/s^2.
        masscart: Mass of the cart, in kg.
        masspole: Mass of the pole, in kg.
        length: Half the length of the pole, in m.
        force_mag: Force of a push, in N.
        tau: Seconds per step.
        theta_threshold: Angle beyond which the episode terminates, in rad.
        x_threshold: Position beyond which the episode terminates, in m.
        max_steps: Steps after which an episode is truncated.
        hide_velocity: With 1 the observation is ``(x, theta)``, so that a policy needs memory to infer velocities.

    Raises:
        ConfigError: If ``hide_velocity`` is neither 0 nor 1.
    """
    if hide_velocity not in (0, 1):
        raise ConfigError(f"env = 'CartPole-v1': hide_velocity = {hide_velocity!r}: must be 0 or 1")
    shown = slice(None, None, 2) if hide_velocity else slice(None)
    total_mass = masscart + masspole
    moment = masspole * length

    def dynamics(physical, action):
        x, x_dot, theta, theta_dot = physical
        force = jnp.where(action > 0, force_mag, -force_mag)
        sin, cos = jnp.sin(theta), jnp.cos(theta)
        push = (force + moment * theta_dot**2 * sin) / total_mass
        theta_acc = (gravity * sin - cos * push) / (length * (4 / 3 - masspole * cos**2 / total_mass))
        x_acc = push - moment * theta_acc * cos / total_mass
        x, theta = x + tau * x_dot, theta + tau * theta_dot
        physical = jnp.stack([x, x_dot + tau * x_acc, theta, theta_dot + tau * theta_acc])
        return physical, 1.0, (jnp.abs(x) > x_threshold) | (jnp.abs(theta) > theta_threshold)

    bounds: tuple[float, ...] = 2 * x_threshold, math.inf, 2 * theta_threshold, math.inf
    high = bounds[shown]
    env = episodic(
        "CartPole-v1",
        levels=lambda key, shape: draw.uniform(key, (*shape, 4), -0.05, 0.05),
        initial=lambda level: level,
        dynamics=dynamics,
        observe=lambda physical: physical[shown],
        time_limit=max_steps,
        observation_space=box([-h for h in high], high),
        action_space=Discrete(2),
    )
    return env._replace(partly_observed=bool(hide_velocity))
