"""A wrapper whose episodes begin in one of some states that are drawn once."""

import jax

from purerl import trees
from purerl.envs.wrappers.kinds import COUNT, takes
from purerl.envs.wrappers.parts import begin, ended, needs_one_agent, with_noise
from purerl.types import Array, Env, Key, PyTree, Step

POOL_SEED = 0
"""Seed of the initial states, which are the same in every run."""


@takes(COUNT)
def reset_pool(env: Env, size: int) -> Env:
    """Every episode begins in a random one of ``size`` states, which are drawn once, from the seed `POOL_SEED`.

    They are the same in all runs and for all agents, and drawn when the environment is made; if a parameter of it is
    traced, where it is made. The noise gains an index into the pool a step. The step of the environment within goes on
    computing a reset of its own, which nothing reads; what other wrappers compute to begin anew becomes a look into the
    pool. Raises `ConfigError` for what is no whole number >= 1, and for several agents.
    """
    needs_one_agent(env, "reset_pool")
    with jax.ensure_compile_time_eval():
        pool = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(POOL_SEED), size))

    def index(key: Key, shape: tuple[int, ...]) -> Array:
        return jax.random.randint(key, shape, 0, size)

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        return trees.take(pool, index(key, ()))

    def step(noise: tuple[PyTree, Array], env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, step = env.step(noise[0], env_state, action)
        return begin(ended(step), trees.take(pool, noise[1]), env_state, step)

    return env._replace(reset=reset, noise=with_noise(env, "reset_pool", index), step=step)
