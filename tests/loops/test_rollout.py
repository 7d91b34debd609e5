"""Rollouts: alignment, true next observations, and episode totals against a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs, exact, ppo
from purerl.envs.episodic import episodic
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.loops.rollout import episode_metrics, init_actors, rollout
from purerl.runs.describing import stop_options
from purerl.spaces import Box, Discrete
from purerl.types import Situation, Transition


def played(reward, last):
    """A trajectory of which these rewards and ends alone are of interest."""
    return Transition((), (), jnp.asarray(reward, jnp.float32), jnp.asarray(last), jnp.zeros_like(last), (), ())


def test_episode_metrics_against_a_loop():
    rng = np.random.default_rng(0)
    episode_return, episode_length = exact.zeros(3), jnp.zeros(3, jnp.int32)
    total, length = np.zeros(3), np.zeros(3)
    for chance in (0.3, 0.0, 1.0, 0.1):
        reward, last = rng.normal(size=(8, 3)), rng.random((8, 3)) < chance
        returns, lengths = [], []
        for t in range(8):
            total, length = total + reward[t], length + 1
            returns += list(total[last[t]])
            lengths += list(length[last[t]])
            total, length = np.where(last[t], 0, total), np.where(last[t], 0, length)
        episode_return, episode_length, metrics = episode_metrics(episode_return, episode_length, played(reward, last))
        np.testing.assert_allclose(exact.value(episode_return), total, atol=1e-6)
        np.testing.assert_array_equal(episode_length, length)
        assert metrics["episodes"] == len(returns)
        if returns:
            np.testing.assert_allclose(metrics["episode_return"], np.mean(returns), rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(metrics["episode_length"], np.mean(lengths), rtol=1e-5)
        else:
            assert np.isnan(metrics["episode_return"]) and np.isnan(metrics["episode_length"])


def test_returns_beside_large_ones():
    """A row that earns 1e5 a step and never ends changes no other's return, nor does an episode before in one row."""
    episode_return, episode_length = exact.zeros(4), jnp.zeros(4, jnp.int32)
    reward = np.broadcast_to(np.array([1e5, 1.0, 1.0, 1.0]), (16, 4)).copy()
    step = jax.jit(episode_metrics)
    for first in range(0, 4096, 16):
        ends = (np.arange(first, first + 16) + 1) % 10 == 0
        last = ends[:, None] & np.array([False, True, True, True])
        episode_return, episode_length, metrics = step(episode_return, episode_length, played(reward, last))
        assert metrics["episode_return"] == (10.0 if last.any() else pytest.approx(np.nan, nan_ok=True))
    assert exact.value(episode_return)[0] == np.float32(4096e5)


def test_a_return_of_a_million_steps():
    """A million rewards of 0.1 count in full, where float32 would end at 100,958; and so do steps beyond 2^24."""
    reward, step = np.full((1000, 1), 0.1, np.float32), jax.jit(episode_metrics)
    total, length = exact.zeros(1), jnp.full(1, 2**24, jnp.int32)
    for _ in range(1000):
        total, length, _ = step(total, length, played(reward, np.zeros((1000, 1), bool)))
    metrics = step(total, length, played(reward, np.arange(1000)[:, None] == 0))[2]
    assert metrics["episode_return"] == pytest.approx(1000001 * float(np.float32(0.1)), rel=1e-7)
    assert metrics["episode_length"] == np.float32(2**24 + 1000001)


def test_what_an_environment_tells(key):
    """Numbers of the last states of episodes are averaged, whatever the states between were; nan if none ended."""
    env = episodic(
        "count",
        levels=lambda key, shape: jax.random.uniform(key, shape),
        initial=lambda level: (level, jnp.zeros(())),
        dynamics=lambda now, action: ((now[0], now[1] + 1), 1.0, now[1] >= 3),
        observe=lambda now: now[1][None],
        time_limit=10,
        observation_space=Box(0, 10, (1,), jnp.float32),
        action_space=Discrete(2),
        info=lambda now: {"begun": now[0], "even": now[1] % 2 == 0},
    )
    assert env.info_names == ("begun", "even")
    learner, rows = ppo.make_learner(ppo.Config(hidden_sizes=(4,)), env), fleet(env, 3)
    actors = init_actors(key, rows, learner)
    roll = jax.jit(lambda a: rollout(key, rows, learner, learner.behaviour(learner.init(key, a.obs)), a, 3))
    after, _, metrics = roll(actors)
    assert np.isnan(metrics["info/begun"]) and np.isnan(metrics["info/even"])
    begun = np.asarray(after.env_state.physical[0])
    metrics = roll(after)[2]
    assert metrics["info/even"] == 1 and metrics["info/begun"] == pytest.approx(begun.mean())
    with pytest.raises(ConfigError, match=r"stop_at = 'info/won:0.5':"):
        stop_options.stopping_trainer(
            ppo.make_trainer(ppo.Config(), env), {"at": 0.5, "episodes": 9, "metric": "info/won"}
        )


def test_alignment(key):
    """obs[t + 1] is next_obs[t], except across an episode's end; what was recorded while acting belongs to obs[t]."""
    env = envs.make("CartPole-v1", max_steps=11)
    learner = ppo.make_learner(ppo.Config(), env)
    actors = init_actors(key, fleet(env, 4), learner)
    state = learner.init(key, actors.obs)
    after, trajectory, metrics = jax.jit(
        lambda k, a: rollout(k, fleet(env, 4), learner, learner.behaviour(state), a, 64)
    )(key, actors)
    np.testing.assert_array_equal(trajectory.obs[0], actors.obs)
    following = jnp.concatenate([trajectory.obs[1:], after.obs[None]])
    goes_on = ~np.asarray(trajectory.last)
    np.testing.assert_array_equal(following[goes_on], trajectory.next_obs[goes_on])
    assert np.all(np.any(following[~goes_on] != trajectory.next_obs[~goes_on], axis=-1))
    assert not np.any(trajectory.terminated & trajectory.truncated)
    assert metrics["episodes"] == np.sum(~goes_on) > 4 and metrics["episode_length"] <= 11
    again = learner.explore(learner.behaviour(state), Situation(trajectory.obs[5], ()), learner.noise(key, (4,)))[2]
    np.testing.assert_allclose(again.policy, trajectory.extras.policy[5], atol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_halves_of_the_environments_by_turns(key, memory):
    """Two half-batches, each with its half of the noise, as double buffers step them: the trajectories of all."""
    env = envs.make("CartPole-v1", max_steps=11)
    learner = ppo.make_learner(ppo.Config(memory=memory), env)
    actors = init_actors(key, fleet(env, 8), learner)
    state = learner.init(key, actors.obs)

    def part(which):
        """A rollout of the environments ``which``, whose noise is theirs among all eight."""

        def noise(of):
            return lambda key, shape: jax.tree.map(lambda x: x[:, which], of.noise(key, (shape[0], 8)))

        some = jax.tree.map(lambda x: x[which], actors)
        levels = lambda key, shape: env.levels(key, (shape[0], 8))[:, which]
        mine = fleet(env._replace(levels=levels), len(some.obs)), learner._replace(noise=noise(learner))
        return jax.jit(lambda key, some: rollout(key, *mine, learner.behaviour(state), some, 32)[1])(key, some)

    whole, *halves = (part(which) for which in (slice(0, 8), slice(0, 4), slice(4, 8)))
    together = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *halves)
    for name in ("obs", "action", "reward", "last"):
        np.testing.assert_array_equal(getattr(together, name), getattr(whole, name))
    np.testing.assert_allclose(together.extras.policy, whole.extras.policy, atol=1e-5)
    assert np.any(whole.last) and len(np.unique(whole.action)) == 2
