"""Fleets: the ``B`` rows of a trajectory. They are copies of one environment, or the agents of its copies."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from purerl import trees
from purerl.types import Array, Env, Key, PyTree, Step


class Fleet(NamedTuple):
    """``size`` rows that step together; whoever steps a fleet does not know what its rows are.

    ``reset`` and ``noise`` consume their key. ``noise(key, shape)`` draws all randomness of ``shape`` many steps, and
    ``step`` takes one element of it. ``env_steps`` is the number of environment steps that one step of the fleet counts
    for.
    """

    size: int
    env_steps: int
    reset: Callable[[Key], tuple[PyTree, PyTree]]  # -> (env_state, obs [B, ...])
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    step: Callable[[PyTree, PyTree, Array], tuple[PyTree, Step]]  # (noise, env_state, action [B, ...]); leaves [B, ...]


def fleet(env: Env, num_envs: int) -> Fleet:
    """``num_envs`` copies of ``env``, a row each; of an environment with ``N`` agents, a row for each agent.

    The rows of a copy's agents lie side by side: row ``i * N + j`` is agent ``j`` of copy ``i``.
    """

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        return jax.vmap(env.reset)(jax.random.split(key, num_envs))

    def noise(key: Key, shape: tuple[int, ...]) -> PyTree:
        return env.noise(key, (*shape, num_envs))

    step = jax.vmap(env.step)
    if env.num_agents == 1:
        return Fleet(num_envs, num_envs, reset, noise, step)

    def reset_agents(key: Key) -> tuple[PyTree, PyTree]:
        env_state, obs = reset(key)
        return env_state, trees.merge(obs, 2)

    def step_agents(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, made = step(noise, env_state, trees.split(action, (num_envs, env.num_agents)))
        return env_state, trees.merge(made, 2)

    return Fleet(num_envs * env.num_agents, num_envs, reset_agents, noise, step_agents)
