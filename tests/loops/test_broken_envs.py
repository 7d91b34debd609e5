"""Environments that give what is not finite: the training dies, keeps its last finite learner, and harms no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import dqn, envs, ppo, trees
from purerl.envs import fleet
from purerl.learners.parts import normalize
from purerl.types import FAULTS

SMALL = {"num_envs": 2, "num_steps": 8, "hidden_sizes": (4,)}
ROWS = {
    "ppo": (ppo, ppo.Config(**SMALL, total_steps=16 * 4, num_minibatches=1, normalize_obs=True, normalize_reward=True)),
    "dqn": (dqn, dqn.Config(**SMALL, total_steps=16 * 6, warmup_steps=16, capacity=64, batch_size=32, n_step=1)),
}
SOUND, NO_OBSERVATION, NO_REWARD, LARGE = range(4)


def broken(how):
    """CartPole, whose second step of an episode shows nan, or rewards with inf, or with 1e30."""
    env = envs.make("CartPole-v1", max_steps=6)

    def step(noise, state, action):
        second = state.t == 1
        state, step = env.step(noise, state, action)
        hide = lambda obs: jnp.where(second & (how == NO_OBSERVATION), jnp.nan, obs)
        reward = jnp.select([~second, how == NO_REWARD, how == LARGE], [1.0, jnp.inf, 1e30], 1.0)
        return state, step._replace(next_obs=hide(step.next_obs), reward=jnp.asarray(reward, jnp.float32))

    return env._replace(step=step)


@pytest.mark.rest
@pytest.mark.weekly("dqn")
@pytest.mark.parametrize("algo", ROWS)
def test_a_training_dies_alone(algo):
    algorithm, config = ROWS[algo]
    train = jax.jit(jax.vmap(lambda how: algorithm.make_train(config, broken(how))(jax.random.key(3))))
    state, metrics = train(jnp.arange(4))
    assert state.alive[:3].tolist() == [True, False, False]
    assert [FAULTS[kind] for kind in state.fault.kind[:3]] == ["nothing", "an observation", "a reward"]
    first = np.asarray(state.fault.iteration.low)[1:3]
    assert np.all(first <= 1 + np.argmin(metrics["alive"][1:3], axis=1)) and np.all(first >= 1)
    np.testing.assert_array_equal(state.alive, metrics["alive"][:, -1])
    assert np.all(np.isfinite(metrics["loss"][np.asarray(metrics["alive"])]))
    sound = train(jnp.zeros(4, jnp.int32)).state.learner
    for x, y in zip(jax.tree.leaves(sound), jax.tree.leaves(state.learner), strict=True):
        assert np.all(np.isfinite(y))
        np.testing.assert_array_equal(x[SOUND], y[SOUND])


def test_masked_environments_begin_anew():
    """The step is cut off with reward 0 and the observation before; a sound environment keeps its bits."""
    key, steps = jax.random.key(5), 9

    def play(env):
        one = fleet(env, 1)

        def step(carry, noise):
            state, obs = carry
            state, following, step = one.step(noise, state, jnp.ones(1, jnp.int32))
            return (state, following), (obs, following, step)

        return trees.take(jax.lax.scan(step, one.reset(key), one.noise(key, (steps,)))[1], np.s_[:, 0])

    for how in (SOUND, NO_OBSERVATION, NO_REWARD):
        before, following, step = play(envs.wrappers.mask_nonfinite(broken(how)))
        _, plain_following, plain = play(broken(how))
        wrong = ~np.isfinite(plain.next_obs).all(1) | ~np.isfinite(plain.reward)
        if how == SOUND:
            assert not wrong.any()
            jax.tree.map(np.testing.assert_array_equal, (following, step), (plain_following, plain))
            continue
        assert np.isfinite(following).all() and np.isfinite(step.next_obs).all() and np.isfinite(step.reward).all()
        cut = np.flatnonzero(step.truncated & (step.reward == 0))
        assert cut[0] == 1 == np.flatnonzero(wrong)[0] and len(cut) > 2 and not step.terminated[cut].any()
        np.testing.assert_array_equal(step.next_obs[cut], before[cut])
        assert np.abs(following[cut]).max() <= 0.05 and len(np.unique(following[cut], axis=0)) == len(cut)


@pytest.mark.rest
def test_a_training_on_masked_environments_lives():
    algorithm, config = ROWS["ppo"]
    make = lambda how: envs.wrappers.mask_nonfinite(broken(how))
    train = jax.jit(jax.vmap(lambda how: algorithm.make_train(config, make(how))(jax.random.key(3))))
    assert train(jnp.arange(3)).state.alive.all()


def test_constant_observations_are_normalised_to_zero():
    running, obs = normalize.running(), jnp.full((8, 2), 3e4)
    moments = running.update(running.init(obs[0]), obs)
    np.testing.assert_allclose(running.apply(moments, obs), 0.0, atol=1e-6)
