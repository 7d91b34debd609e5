"""Evaluation counts the first episode of each environment, whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs, evaluate, ppo
from purerl.loops.evaluation import Player, versus
from purerl.types import Situation


@pytest.mark.rest
def test_against_a_plain_loop(key):
    env = envs.make("CartPole-v1")
    learner = ppo.make_learner(ppo.Config(), env)
    policy = learner.policy(learner.init(key, jnp.zeros((1, 4))))
    result = jax.jit(lambda k, p: evaluate(k, env, learner, p, 16, 1000))(key, policy)
    assert np.all(result.finished)
    np.testing.assert_array_equal(result.episode_return, result.episode_length)
    key_reset, _ = jax.random.split(key)
    state, obs = jax.vmap(env.reset)(jax.random.split(key_reset, 16))
    step = jax.jit(jax.vmap(env.step))
    lengths, running = np.zeros(16), np.ones(16, bool)
    while running.any():
        action, _ = learner.exploit(policy, Situation(obs, ()), key)
        state, out = step(env.noise(key, (16,)), state, action)
        obs, lengths = out.next_obs, lengths + running
        running &= ~np.asarray(out.terminated | out.truncated)
    np.testing.assert_array_equal(result.episode_length, lengths)


def test_endless_episodes_are_cut(key):
    env = envs.make("probe/constant-reward", max_steps=10**6)
    learner = ppo.make_learner(ppo.Config(), env)
    _, obs = env.reset(key)
    policy = learner.policy(learner.init(key, obs[None]))
    result = evaluate(key, env, learner, policy, 3, max_steps=7)
    assert not np.any(result.finished) and np.all(result.episode_length == 7)


def test_players_of_a_game_remember_what_each_sees(key):
    """One cooperates until it has been paid anything, and is paid 0 for it, since the other always defects; then 1."""
    env = envs.make("MatrixGame-v0", payoffs=[[[3, 0], [5, 1]], [[3, 5], [0, 1]]], rounds=3)
    defect = Player(lambda here, key: (jnp.ones(len(here.obs), jnp.int32), here.carry), lambda rows: ())
    total = lambda carry, step: jnp.where(step.last, 0.0, carry + 1 + step.reward)
    wary = Player(
        lambda here, key: ((here.carry >= 0).astype(jnp.int32), here.carry), lambda rows: -jnp.ones(rows), total
    )
    result = versus(key, env, wary, defect, 4)
    np.testing.assert_array_equal(result.episode_return, [0 + 1 + 1] * 4)
