"""Trajectories that are learned from several times, against plain learners that are given them all at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import for_bits

from purerl import envs, impala, ppo
from purerl.errors import ConfigError
from purerl.learners.parts import reuse
from purerl.types import Updated

ENV = envs.make("CartPole-v1", max_steps=10, theta_threshold=0.1)
SIZES = {"total_steps": 6 * 8 * 4, "num_envs": 4, "num_steps": 8, "hidden_sizes": (8,), "max_uses": 3}
EPOCHS = {"num_epochs": 2, "num_minibatches": 1}
SGD = {"optimiser": optax.sgd(0.1)}
ITERATIONS = 5


def jit(function):
    return jax.jit(function, compiler_options=for_bits())


def iterations(algo, config, key):
    """Learners before and after each iteration, the trajectory and the key that it was given, and its metrics."""
    trainer = algo.make_trainer(config, ENV, **SGD)
    collect, update = jit(trainer.collect), jit(trainer.learner.update)
    state = jit(trainer.init)(key)
    learner, actors = state.learner, state.actors
    for key_one in jax.random.split(key, ITERATIONS):
        actors, trajectory, _ = collect(trainer.learner.behaviour(learner), actors, key_one)
        updated = update(learner, trajectory, key_one)
        yield learner, trajectory, key_one, updated
        learner = updated.state


@pytest.mark.rest
@pytest.mark.weekly("minibatches", "impala")
@pytest.mark.parametrize(
    ("algo", "sizes"),
    [
        (ppo, EPOCHS),
        (ppo, {**EPOCHS, "num_minibatches": 2}),
        (ppo, {**EPOCHS, "memory": "gru", "memory_size": 4, "sequence_length": 4}),
        (impala, {"normalize_reward": False}),
    ],
    ids=["ppo", "minibatches", "memory", "impala"],
)
def test_an_iteration_learns_from_all_at_once(algo, sizes, key):
    """Parameters, metrics and scores are those of a learner that knows of no queue and is given the newest trajectory,
    followed by those before it; the first iterations have fewer. Minibatches draw from what is there alone, so with
    several of them only those of a full queue are the same."""
    config = algo.Config(**SIZES, **sizes)
    plain = algo.make_learner(dataclasses.replace(config, max_uses=1), ENV, **SGD)
    update, past = jit(plain.update), []
    for before, trajectory, key_one, updated in iterations(algo, config, key):
        given = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), trajectory, *past)
        full = len(past) == config.max_uses - 1
        past = [*past, trajectory][-config.max_uses + 1 :]
        if not full and sizes.get("num_minibatches", 1) > 1:
            continue
        expected = update(before.learner, given, key_one)
        close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
        jax.tree.map(close, updated.state.params, expected.state.params)
        jax.tree.map(close, updated.metrics, expected.metrics)
        jax.tree.map(close, updated.scores, jax.tree.map(lambda x: x[:, :4], expected.scores))


@pytest.mark.rest
def test_statistics_count_each_trajectory_once(key):
    """The moments of observations and of returns are those of a learner that sees each trajectory once."""
    config = ppo.Config(**SIZES, **EPOCHS, normalize_obs=True, normalize_reward=True)
    plain = ppo.make_learner(dataclasses.replace(config, max_uses=1), ENV, **SGD)
    update, state = jit(plain.update), None
    for before, trajectory, key_one, updated in iterations(ppo, config, key):
        state = update(state or before.learner, trajectory, key_one).state
        for name in ("obs_moments", "reward_scale"):
            jax.tree.map(np.testing.assert_array_equal, getattr(updated.state.learner, name), getattr(state, name))


@pytest.mark.rest
def test_each_is_used_so_often(key):
    """Of trajectories that bear numbers, in order: the newest and the two before it, each whole; and the newest again
    where the queue has nothing yet."""
    used, config = np.zeros(8, int), ppo.Config(**SIZES, **EPOCHS)
    trainer = ppo.make_trainer(config, ENV)
    start = trainer.init(key)
    _, example, _ = trainer.collect(trainer.learner.behaviour(start.learner), start.actors, key)
    plain = ppo.make_learner(dataclasses.replace(config, max_uses=1), ENV)
    scale = lambda state, trajectory: (state, trajectory)
    learn = lambda state, newest, given, present, key, acted_by: Updated(
        state, {"given": given, "present": present}, ()
    )
    learner = reuse.reusing(config, plain, scale, learn, num_steps=8, may_leave=False)
    state, update = start.learner, jit(learner.update)
    for number in range(len(used)):
        trajectory = example._replace(reward=jnp.full_like(example.reward, number))
        state, metrics, _ = update(state, trajectory, key)
        given, present = metrics["given"], metrics["present"]
        assert present.shape == given.reward.shape == (8, 12)
        np.testing.assert_array_equal(given.reward[:, :4], number)
        np.testing.assert_array_equal(given.reward[~np.asarray(present)], number)
        numbers = np.unique(given.reward[np.asarray(present)]).astype(int)
        np.testing.assert_array_equal(numbers, np.arange(max(number - 2, 0), number + 1))
        used[numbers] += 1
    np.testing.assert_array_equal(used, [3] * 6 + [2, 1])
    np.testing.assert_array_equal(np.sort(state.queue.uses[:, 0]), [0, 1])


def test_what_is_refused():
    with pytest.raises(ConfigError, match=r"max_uses = 0: must lie in \[1, 2147483648\)"):
        ppo.make_trainer(ppo.Config(**{**SIZES, "max_uses": 0}, **EPOCHS), ENV)
    many = {**SIZES, "num_envs": 2**10, "num_steps": 2**10, "total_steps": 2**20, "max_uses": 2**11}
    with pytest.raises(ConfigError, match=r"num_envs \* num_steps \* max_uses = 2147483648: must be below 2147483648"):
        ppo.make_trainer(ppo.Config(**many, **EPOCHS), ENV)
