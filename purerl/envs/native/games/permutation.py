"""A game that agents with shared parameters can only solve if they know which one they are."""

import jax.numpy as jnp

from purerl.envs.native.games.game import bits, check, game
from purerl.types import Env


def permutation(*, num_agents: int = 3) -> Env:
    """Makes Permutation-v0: one step, which pays the team 1 if all agents choose different actions, else 0.

    There are as many actions as agents ``N``, and the observation ``[1]`` is always True. A policy that all agents
    share is worth at most ``N! / N**N`` (2 / 9 for three, that of random play); with the number of the agent in its
    observation it can be worth 1.

    Args:
        num_agents: The number of agents, at least 2.
    """
    check("Permutation-v0", "num_agents", num_agents, type(num_agents) is int and num_agents >= 2, "2 or more")

    def dynamics(physical, action):
        return physical, jnp.all(jnp.sort(action) == jnp.arange(num_agents)), True

    return game(
        "Permutation-v0",
        num_agents=num_agents,
        num_actions=num_agents,
        initial=lambda level: level,
        dynamics=dynamics,
        observe=lambda physical: jnp.ones((num_agents, 1), bool),
        observation_space=bits(1),
        time_limit=1,
    )
