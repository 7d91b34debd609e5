"""The critic's values of the agent that dies and of the one that goes on, after 60,000 steps with gamma 0.9."""

import sys

import jax
import numpy as np

import purerl
from purerl import envs, ppo
from purerl.formulas import distributions
from purerl.learners.families import actor_critic


def observed(space):
    """Both agents' observations in the form of ``space``, in which whatever is not the agent's own is 1."""
    if isinstance(space, dict):
        return {key: observed(part) for key, part in space.items()}
    return np.eye(2, dtype=np.float32) if space.shape == (2,) else np.ones((2, *space.shape), space.dtype)


if __name__ == "__main__":
    env = envs.make("agents:Dead")
    steps = int(sys.argv[1]) if sys.argv[1:] else 60_000
    config = ppo.Config(num_envs=4, num_steps=40, total_steps=steps, gamma=0.9, hidden_sizes=(16,), entropy_coef=0.0)
    result = purerl.train_in_chunks(ppo.make_trainer(config, env), jax.random.key(0), config.num_iterations)
    network = actor_critic.make_network(config, env, distributions.for_space(env.action_space))
    for name, row in (("x", 0), ("y", 1)):
        obs = jax.tree.map(lambda x, row=row: x[row : row + 1, None], observed(env.observation_space))
        last = np.ones((1, 1), bool)
        value = network.unroll(result.state.learner.params, obs, network.init_carry(1), last)[1]
        print("value", name, float(np.asarray(value)[0, 0]))
