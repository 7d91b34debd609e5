"""Evaluating a policy on whole episodes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.envs.fleet import fleet
from purerl.loops.rollout import restart
from purerl.types import Array, Env, Key, Learner, PyTree


class Evaluation(NamedTuple):
    """Each episode's undiscounted return and its length in steps ``[E]``; ``finished`` is False where it was cut."""

    episode_return: Array
    episode_length: Array
    finished: Array


def evaluate(
    key: Key, env: Env, learner: Learner, policy: PyTree, num_episodes: int = 100, max_steps: int = 10_000
) -> Evaluation:
    """Plays ``num_episodes`` episodes side by side under ``learner.exploit``, each for at most ``max_steps`` steps.

    The first episode of each environment counts, whatever its length, so that short episodes are not favoured.
    Of an environment with several agents, each agent's episode is a row of its own. ``policy`` is
    ``learner.policy(state)``. Consumes ``key``. To jit and vmap over keys and policies.
    """
    key_reset, key_step = jax.random.split(key)
    rows, begin_anew = fleet(env, num_episodes), restart(learner)
    env_state, obs = rows.reset(key_reset)

    def under_way(loop):
        time, *_, finished = loop
        return (time < max_steps) & ~jnp.all(finished)

    def act(loop):
        time, env_state, obs, carry, total, length, finished = loop
        key_env, key_policy = jax.random.split(jax.random.fold_in(key_step, time))
        action, carry = learner.exploit(policy, obs, carry, key_policy)
        env_state, step = rows.step(rows.noise(key_env, ()), env_state, action)
        carry = begin_anew(carry, step.terminated | step.truncated)
        total = total + jnp.where(finished, 0.0, step.reward)
        length = length + ~finished
        return time + 1, env_state, step.obs, carry, total, length, finished | step.terminated | step.truncated

    start = (
        jnp.zeros((), jnp.int32),
        env_state,
        obs,
        learner.init_carry(rows.size),
        jnp.zeros(rows.size),
        jnp.zeros(rows.size, jnp.int32),
        jnp.zeros(rows.size, bool),
    )
    *_, total, length, finished = jax.lax.while_loop(under_way, act, start)
    return Evaluation(total, length, finished)
