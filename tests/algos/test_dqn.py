"""What is DQN's own: when the target follows, what a weight does, and how a config's counts fall together."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import compiled

from purerl import ConfigError, check, counters, dqn, envs
from purerl.algos.dqn import make_network
from purerl.formulas import td_errors
from purerl.types import Outcome, Sample

ENV = envs.make("CartPole-v1")
CONFIG = dqn.Config(
    total_steps=400, num_envs=4, num_steps=2, num_updates=3, batch_size=8, warmup_steps=10, n_step=1, huber_delta=0.5
)


def make_learner(config, **parts):
    """DQN's learner, compiled."""
    return compiled(dqn.make_learner(config, ENV, **parts), "init", "update")


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    obs, next_obs = jnp.asarray(rng.normal(size=(2, 8, 4)), jnp.float32)
    action = jnp.asarray(rng.integers(0, 2, size=8), jnp.int32)
    items = Outcome(obs, action, jnp.ones(8), jnp.full(8, CONFIG.gamma), next_obs, (), ())
    return Sample(items, jnp.arange(8), jnp.zeros(8, jnp.int32), jnp.ones(8))


def test_target_follows_every_period(sample, key):
    learner = make_learner(dataclasses.replace(CONFIG, target_period=3))
    state = learner.init(key, sample.items.obs)
    kernel = lambda params: np.asarray(jax.tree.leaves(params)[1])
    target = kernel(state.target_params)
    for i in range(1, 8):
        state, _, _ = learner.update(state, sample, key)
        target = kernel(state.params) if i % 3 == 0 else target
        np.testing.assert_array_equal(kernel(state.target_params), target)
        assert np.any(kernel(state.params) != target) == (i % 3 != 0) and counters.number(state.updates) == i


def test_updates_beyond_int32(sample, key):
    """A training of 1e11 frames goes on counting, and its epsilon falling; the target's age is a count of its own."""
    config = dataclasses.replace(CONFIG, total_steps=10**11, exploration_fraction=1.0)
    learner = make_learner(config)
    state = learner.init(key, sample.items.obs)._replace(updates=counters.of(2**31 - 1))
    state, metrics, _ = learner.update(state, sample, key)
    assert counters.number(state.updates) == 2**31 and state.target_age == 1
    np.testing.assert_allclose(metrics["epsilon"], 1 - 0.95 * 2**31 / config.total_updates, rtol=1e-6)


def test_weight_zero_is_not_learned_from(sample, key):
    """Changing a sample of weight 0 changes no parameter; one of weight 1 does."""
    learner = make_learner(CONFIG)
    state = learner.init(key, sample.items.obs)
    sample = sample._replace(weight=sample.weight.at[3].set(0))
    learned = [
        learner.update(state, sample._replace(items=sample.items._replace(reward=reward)), key)[0].params
        for reward in (sample.items.reward, sample.items.reward.at[3].set(9), sample.items.reward.at[2].set(-9))
    ]
    same = [all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(np.all(a == b)), learned[0], x))) for x in learned[1:]]
    assert same == [True, False]


@pytest.mark.rest
@pytest.mark.parametrize("double", [True, False])
def test_loss_against_numpy(sample, key, double):
    """The mean Huber loss of Q-learning's errors, from the networks' outputs; the priorities are their sizes."""
    discount = jnp.where(jnp.arange(8) < 4, 0.0, 0.9)
    weight = jnp.linspace(0, 1, 8)
    sample = sample._replace(items=sample.items._replace(discount=discount), weight=weight)
    config = dataclasses.replace(CONFIG, double=double)
    learner, network = make_learner(config), make_network(config, ENV)
    state = learner.init(key, sample.items.obs)
    disturbed = jax.tree.map(lambda x: x + jax.random.normal(jax.random.key(5), x.shape), state.params)
    state = state._replace(params=disturbed)
    _, metrics, priority = learner.update(state, sample, key)
    obs, next_obs = sample.items.obs, sample.items.next_obs
    q, online, target = (
        np.asarray(network.apply(params, x, ()), np.float64)
        for params, x in ((state.params, obs), (state.params, next_obs), (state.target_params, next_obs))
    )
    chosen = (online if double else target).argmax(axis=1)
    assert np.any(online.argmax(axis=1) != target.argmax(axis=1))
    error = 1 + discount * target[range(8), chosen] - q[range(8), sample.items.action]
    size = np.abs(error)
    delta = CONFIG.huber_delta
    huber = np.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))
    np.testing.assert_allclose(metrics["loss"], np.mean(weight * huber), rtol=1e-5)
    np.testing.assert_allclose(priority, size, rtol=1e-5)


@pytest.mark.rest
def test_epsilon_falls_over_the_fraction():
    learner = dqn.make_learner(CONFIG, envs.make("CartPole-v1"))
    train = dqn.make_train(CONFIG, envs.make("CartPole-v1"), td_error=td_errors.munchausen)
    result = jax.jit(train)(jax.random.key(0))
    epsilon = np.asarray(result.metrics["epsilon"])
    updates = np.arange(CONFIG.total_updates).reshape(-1, CONFIG.num_updates)
    expected = 1 - 0.95 * np.clip(updates / (CONFIG.exploration_fraction * CONFIG.total_updates), 0, 1)
    np.testing.assert_allclose(epsilon, expected.mean(axis=1), rtol=1e-4)
    assert learner.policy(result.state.learner) is result.state.learner.params


def test_counts_are_whole_iterations():
    """Ring and warm-up are rounded up to iterations of 4 * 2 steps, the training down; warm-up is part of it."""
    assert (CONFIG.warmup_rows, CONFIG.num_iterations, CONFIG.total_updates) == (4, 48, 144)
    assert dataclasses.replace(CONFIG, capacity=17).capacity_rows == 6
    trainer = dqn.make_trainer(CONFIG, envs.make("CartPole-v1"))
    assert (trainer.env_steps, trainer.warmup_steps) == (8, 16)


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"total_steps": 23}, ["total_steps = 23: must be at least the warm-up and one iteration, 24"]),
        ({"capacity": 4, "num_steps": 1}, ["capacity = 4:"]),
        ({"n_step": 5}, ["warmup_steps = 10: must hold 6 steps of each environment, 24"]),
        ({"capacity": 2**31 - 1}, [f"capacity = {2**31 - 1}: must be below {2**31} when rounded up"]),
        ({"hidden_sizes": ()}, ["hidden_sizes = ():"]),
        ({"capacity": 0, "total_steps": 1}, ["capacity = 0:"]),
        ({"exploration_fraction": 0.0}, ["exploration_fraction = 0.0:"]),
        ({"lag": 5, "max_lag": 2}, ["lag = 5:"]),
        ({"td_error": "munchausen", "n_step": 2}, ["n_step = 2:"]),
        ({"n_step": "3"}, ["n_step = '3':"]),
        ({"hidden_sizes": None}, ["hidden_sizes = None:"]),
        ({"target_period": 2**31}, [f"target_period = {2**31}:"]),
    ],
)
def test_problems(change, lines):
    config = dataclasses.replace(CONFIG, **change)
    problems = dqn.problems(config, None)
    assert len(problems) == len(lines) and all(a.startswith(b) for a, b in zip(problems, lines, strict=True))
    with pytest.raises(ConfigError):
        check(config, *problems)


def test_defaults_are_sound():
    assert dqn.problems(dqn.Config(), envs.make("CartPole-v1")) == []
    [problem] = dqn.problems(dqn.Config(), envs.make("Pendulum-v1"))
    assert "the algorithm needs Discrete" in problem


def test_gradients_lag(sample, key):
    """With a lag of 2 the fourth update takes its gradient before the second one; beyond the bound there is none."""
    config = dataclasses.replace(CONFIG, lag=2)
    parts = {"optimiser": optax.sgd(0.1)}
    learner, prompt = make_learner(config, **parts), make_learner(CONFIG, **parts)
    states = [learner.init(key, sample.items.obs)]
    for _ in range(4):
        states.append(learner.update(states[-1], sample, key)[0])
    for now, then in ((0, 0), (1, 0), (2, 0), (3, 1)):
        before, after = states[now].params, states[now + 1].params
        at = states[now]._replace(params=states[then].params, past=())
        expected = jax.tree.map(
            lambda new, old, p: p + new - old, prompt.update(at, sample, key)[0].params, states[then].params, before
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), after, expected)
    assert np.any(jax.tree.leaves(states[1].params)[1] != jax.tree.leaves(states[3].params)[1])
    dropped = make_learner(dataclasses.replace(config, max_lag=1))
    state, _, _ = dropped.update(dropped.init(key, sample.items.obs), sample, key)
    jax.tree.map(np.testing.assert_array_equal, state.params, states[0].params)


def test_shards_without_lag_are_one_batch(sample, key):
    """The mean of the steps of K learners, each on its part of a batch, is the step on the whole of it."""
    learner = make_learner(CONFIG, optimiser=optax.sgd(0.1))
    state = learner.init(key, sample.items.obs)
    whole = learner.update(state, sample, key)[0].params
    shards = [learner.update(state, jax.tree.map(lambda x, k=k: x[k::4], sample), key)[0].params for k in range(4)]
    mean = jax.tree.map(lambda *x: sum(x) / 4, *shards)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), whole, mean)


@pytest.mark.rest
@pytest.mark.parametrize("store", [False, True])
def test_steps_at_a_cut(store):
    """All reward lies on the step that a time limit cuts. With a limit of one step most of what followed is not kept,
    unless all is; from the rest the same is learned."""
    config = dqn.Config(
        total_steps=4000,
        num_envs=4,
        num_steps=4,
        warmup_steps=256,
        batch_size=64,
        gamma=0.5,
        learning_rate=1e-2,
        target_period=5,
        hidden_sizes=(16,),
        store_next_obs=store,
    )
    env = envs.make("probe/constant-reward", max_steps=1)
    network, obs = make_network(config, env), jnp.ones((1, 1))
    result = jax.jit(dqn.make_train(config, env))(jax.random.key(0))
    value = jnp.max(network.apply(result.state.learner.params, obs, ()))
    np.testing.assert_allclose(value, 1 / (1 - 0.5), rtol=0.02)
