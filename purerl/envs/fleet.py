"""Fleets: the ``B`` rows of a trajectory. They are copies of one environment, or the agents of its copies."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.envs import resets, seats
from purerl.types import Array, Env, Key, Metrics, PyTree, Step

STEPS = zlib.crc32(b"steps")
"""Keeps the key of the noise of steps apart from that of resets."""


class Fleet(NamedTuple):
    """``size`` rows that step together; the code that steps a fleet does not know what its rows are.

    ``reset`` and ``noise`` consume their key. ``noise(key, shape)`` draws all randomness of ``shape`` many steps, that
    of resets too, and ``step`` takes one element of it. A step begins the next episode where one ended, so ``obs`` is
    what the policy sees next, and `Step.next_obs` what the action led to. ``env_steps`` is the number of environment
    steps that one step of the fleet counts for. ``metrics(last [T, B])`` are the metrics of the resets of a trajectory.
    ``env`` is the environment that the rows are of; None: the rows are something else.
    """

    size: int
    env_steps: int
    reset: Callable[[Key], tuple[PyTree, PyTree]]  # -> (env_state, obs [B, ...])
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    step: Callable[[PyTree, PyTree, Array], tuple[PyTree, PyTree, Step]]
    # (noise, env_state, action [B, ...]) -> (env_state, obs, Step); leaves [B, ...]
    metrics: Callable[[Array], Metrics] = resets.nothing
    env: Env | None = None

    @property
    def host(self) -> Any:
        """The `HostEnv` that steps the environments if they are the host's (`Env.host`), None otherwise."""
        return self.env and self.env.host


def fleet(env: Env, num_envs: int, begins: resets.Resets | None = None) -> Fleet:
    """Makes ``num_envs`` copies of ``env``, a row each; of an environment with ``N`` agents, a row for each agent.

    The rows of a copy's agents lie side by side: row ``i * N + j`` is agent ``j`` of copy ``i``. Games begin as
    ``begins``, the resets of `seats.seated` environments, says (None: as ``env.resets`` does).

    Raises:
        ConfigError: As `resets.parse` does.
    """
    num_agents = env.num_agents
    game = seats.seated(env)
    begins = begins or resets.make_resets(game, num_envs)

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[PyTree, PyTree]:
        return env.noise(jax.random.fold_in(key, STEPS), (*shape, num_envs)), begins.noise(key, shape)

    def step(noise: tuple[PyTree, PyTree], env_state: PyTree, action: Array) -> tuple[PyTree, PyTree, Step]:
        env_state, made = jax.vmap(game.step)(noise[0], env_state, action)
        last = made.game_over if num_agents == 1 else made.game_over[:, 0]
        env_state, obs = begins.renew(noise[1], last, (env_state, made.next_obs))
        return env_state, obs, made._replace(info=told(env, made))

    if num_agents == 1:
        return Fleet(num_envs, num_envs, begins.first, noise, step, begins.metrics, env)

    def reset_agents(key: Key) -> tuple[PyTree, PyTree]:
        env_state, obs = begins.first(key)
        return env_state, trees.merge(obs, 2)

    def step_agents(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, PyTree, Step]:
        env_state, obs, made = step(noise, env_state, trees.split(action, (num_envs, num_agents)))
        return env_state, *trees.merge((obs, made), 2)

    rows = num_envs * num_agents
    metrics = lambda last: begins.metrics(last[:, ::num_agents])
    return Fleet(rows, num_envs, reset_agents, noise, step_agents, metrics, env)


def told(env: Env, made: Step) -> PyTree:
    """Returns the numbers of `Env.info_names` in a step ``[E]`` of ``env``, as float32 of the shape of its rewards.

    ``()`` if there are none.
    """
    shape = made.reward.shape

    def lead(x: Array) -> Array:
        return jnp.asarray(x, jnp.float32).reshape(shape[0], *[1] * (len(shape) - jnp.ndim(x)), *x.shape[1:])

    return {name: jnp.broadcast_to(lead(made.info[name]), shape) for name in env.info_names} or ()
