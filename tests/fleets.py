"""Environments as fleets step them: an episode begins where one ended."""

import jax

from purerl import trees
from purerl.envs.fleet import fleet
from purerl.spaces import sample


def alone(env):
    """``step((noise, level), env_state, action) -> (env_state, obs, Step)`` of one copy, as a fleet steps it."""
    row = fleet(env, 1)
    lead = lambda tree: jax.tree.map(lambda x: x[None], tree)
    plain = lambda tree: trees.take(tree, 0) if env.num_agents == 1 else tree

    def step(noise, env_state, action):
        env_state, obs, made = row.step(lead(noise), lead(env_state), lead(action) if env.num_agents == 1 else action)
        return trees.take(env_state, 0), plain(obs), plain(made)

    return step


def drawn(env, key, shape=()):
    """Noise and levels of ``shape`` many steps of one copy, for `alone`."""
    return jax.tree.map(lambda x: x[(slice(None),) * len(shape) + (0,)], fleet(env, 1).noise(key, shape))


def play(env, num_envs, num_steps, seed=0, act=None, actions=None):
    """What is seen first ``[B, ...]``, then states before, actions, what is seen after and Steps ``[T, B, ...]``.

    Play is random, or that of ``act(obs, random actions)``, or ``actions``. Of several agents ``[B, N, ...]``.
    """
    rows, several = fleet(env, num_envs), env.num_agents > 1
    shape = (num_envs, env.num_agents) if several else (num_envs,)

    @jax.jit
    def run(key, actions):
        key_reset, key_noise, key_action = jax.random.split(key, 3)
        parted = (lambda tree: trees.split(tree, shape)) if several else (lambda tree: tree)
        env_state, obs = rows.reset(key_reset)
        if actions is None:
            actions = sample(env.action_space, key_action, (num_steps, *shape))

        def one(carry, inputs):
            env_state, obs = carry
            action = act(obs, inputs[1]) if act else inputs[1]
            following, seen, made = rows.step(inputs[0], env_state, trees.merge(action, 2) if several else action)
            return (following, parted(seen)), (env_state, action, parted(seen), parted(made))

        start = env_state, parted(obs)
        return start[1], *jax.lax.scan(one, start, (rows.noise(key_noise, (num_steps,)), actions))[1]

    return jax.device_get(run(jax.random.key(seed), actions))
