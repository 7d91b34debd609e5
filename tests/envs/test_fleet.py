"""Fleets: agents as rows, equal to the bit to lone environments; and memories that outlive an episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import for_bits

from purerl import dqn, envs, evaluate, ppo
from purerl.envs.fleet import fleet
from purerl.loops.rollout import init_actors, rollout

LONE = envs.make("CartPole-v1", max_steps=20)
LONE = LONE._replace(reset=lambda key: envs.make("CartPole-v1").reset(jax.random.key(0)))


def apart(env, num_agents):
    """``num_agents`` agents in one environment who never meet: each has a copy of ``env``."""

    def reset(key):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_agents, *x.shape)), env.reset(key))

    return env._replace(
        name=f"{num_agents} x {env.name}",
        reset=reset,
        noise=lambda key, shape: env.noise(key, (*shape, num_agents)),
        step=jax.vmap(env.step),
        num_agents=num_agents,
    )


SMALL = {"num_steps": 16, "hidden_sizes": (8,), "learning_rate": 1e-2}
RING = {"num_updates": 2, "batch_size": 8, "prioritised": True, "epsilon_ladder": 2.0}


@pytest.mark.parametrize("algo", [ppo, dqn], ids=lambda algo: algo.name)
def test_agents_who_do_not_meet_are_lone_environments(algo):
    """An unmodified algorithm: two agents of three copies against six lone environments, bit for bit."""

    def run(env, num_envs):
        sizes = {**SMALL, "num_envs": num_envs, "total_steps": num_envs * 16 * 12}
        ring = RING | {"capacity": num_envs * 64, "warmup_steps": num_envs * 16}
        config = algo.Config(**sizes, **({"num_minibatches": 2} if algo is ppo else ring))
        train = jax.jit(algo.make_train(config, env), compiler_options=for_bits())
        return train(jax.random.key(2))

    lone, pairs = run(LONE, 6), run(apart(LONE, 2), 3)
    jax.tree.map(np.testing.assert_array_equal, lone.state.learner, pairs.state.learner)
    jax.tree.map(np.testing.assert_array_equal, lone.metrics, pairs.metrics)
    assert np.nansum(lone.metrics["episodes"]) > 10


def test_rows_of_a_fleet():
    rows = fleet(apart(LONE, 2), 3)
    assert (rows.size, rows.env_steps) == (6, 3)
    env_state, obs = rows.reset(jax.random.key(0))
    assert obs.shape == (6, 4)
    action = jnp.array([0, 1, 0, 1, 0, 1])
    _, step = rows.step(rows.noise(jax.random.key(1), ()), env_state, action)
    assert step.reward.shape == (6,) and np.all(step.obs[::2, 1] < 0) and np.all(step.obs[1::2, 1] > 0)
    learner = ppo.make_learner(ppo.Config(), apart(LONE, 2))
    policy = learner.policy(learner.init(jax.random.key(0), obs))
    assert evaluate(jax.random.key(3), apart(LONE, 2), learner, policy, num_episodes=5).episode_return.shape == (10,)


def test_a_learner_decides_what_its_carry_keeps():
    """A count of steps that begins anew with each episode, beside one of steps and rewards that goes on."""
    learner = ppo.make_learner(ppo.Config(), LONE)._replace(
        init_carry=lambda num_envs: (jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs, jnp.int32)),
        restart=lambda carry, step: (jnp.where(step.last, 0, carry[0]), carry[1] + (step.reward > 0)),
    )
    explore = learner.explore

    def counting(state, obs, carry, noise):
        action, _, _ = explore(state, obs, (), noise)
        return action, jax.tree.map(lambda x: x + 1, carry), carry

    learner = learner._replace(explore=counting)
    actors = init_actors(jax.random.key(0), fleet(LONE, 3), learner)
    state = learner.init(jax.random.key(1), actors.obs)
    after, trajectory, _ = rollout(jax.random.key(2), fleet(LONE, 3), learner, state, actors, 50)
    episode, life = trajectory.extras
    assert np.all(life == 2 * np.arange(50)[:, None]) and np.all(after.carry[1] == 100)
    began = np.concatenate([np.ones((1, 3), bool), np.asarray(trajectory.last)[:-1]])
    assert np.all((episode == 0) == began) and np.sum(began) > 3
