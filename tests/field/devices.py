"""An environment of JAX in which one copy earns 1e5 a step while the episodes of others return 10."""

import jax
import jax.numpy as jnp

from purerl.envs import episodic
from purerl.spaces import Box, Discrete


def mixed(*, rich: float = 1e5):
    """A quarter of the levels pay ``rich`` in each of 2000 steps; the others pay 1 in each of ten."""

    def dynamics(state, action):
        time, wealth = state
        last = (wealth == 0) & (time >= 9)
        return (time + 1, wealth), jnp.where(wealth > 0, rich, 1.0), last

    return episodic(
        "mixed",
        levels=lambda key, shape: jax.random.bernoulli(key, 0.25, shape).astype(jnp.int32),
        initial=lambda level: (jnp.int32(0), level),
        dynamics=dynamics,
        observe=lambda state: jnp.zeros(1),
        time_limit=2000,
        observation_space=Box(0.0, 1.0, (1,), jnp.float32),
        action_space=Discrete(2),
    )
