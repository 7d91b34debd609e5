"""What is PQN's own: its update against numpy, what its targets see of an episode's end, and how epsilon falls."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
from flax import linen as nn

from purerl import ConfigError, check, counters, envs
from purerl.algos import pqn
from purerl.types import Situation, Transition

T, B, STEP_SIZE = 6, 2, 0.5
TERMINATED, TRUNCATED = (1, 0), (3, 1)  # a step of one environment each
CONFIG = pqn.PQNConfig(
    total_steps=T * B * 10, num_envs=B, num_steps=T, num_epochs=1, num_minibatches=1, gamma=0.9, trace_lambda=0.7
)
ENV = envs.make("CartPole-v1")


@pytest.fixture(scope="module")
def trajectory():
    """Random throughout: no next observation is the observation of the next step."""
    rng = np.random.default_rng(0)
    obs, next_obs = jnp.asarray(rng.normal(size=(2, T, B, 4)), jnp.float32)
    ends = [jnp.zeros((T, B), bool).at[at].set(True) for at in (TERMINATED, TRUNCATED)]
    action, reward = rng.integers(0, 2, size=(T, B)), rng.normal(size=(T, B))
    return Transition(obs, jnp.asarray(action, jnp.int32), jnp.asarray(reward, jnp.float32), *ends, next_obs, ())


def linear(config):
    """The learner of a linear network under plain gradient descent, and a state that is not zero."""
    learner = pqn.make_learner(config, ENV, network=nn.Dense(2), optimiser=optax.sgd(STEP_SIZE))
    return learner, learner.init(jax.random.key(3), jnp.zeros((B, 4)))


@pytest.mark.parametrize("num_epochs", [1, 2])
def test_update_against_numpy(trajectory, key, num_epochs):
    """Gradient steps of a linear network on half the squared error, with targets that stay those of the start."""
    learner, state = linear(dataclasses.replace(CONFIG, num_epochs=num_epochs))
    learned, metrics, scores = jax.jit(learner.update)(state, trajectory, key)

    array = lambda x: np.asarray(x, np.float64)
    kernel, bias = (array(state.params["params"][name]) for name in ("kernel", "bias"))
    next_value = (array(trajectory.next_obs) @ kernel + bias).max(axis=-1)
    discount, last = CONFIG.gamma * (1 - array(trajectory.terminated)), np.asarray(trajectory.last)
    target = np.stack(
        [
            oracles.lambda_returns(array(trajectory.reward)[:, b], next_value[:, b], discount[:, b], last[:, b], 0.7)
            for b in range(B)
        ],
        axis=1,
    )
    value = (array(trajectory.obs) @ kernel + bias).max(axis=-1)
    np.testing.assert_allclose(scores.value, value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores.advantage, target - value, rtol=1e-5, atol=1e-5)
    losses = []
    for _ in range(num_epochs):
        kernel_step, bias_step, loss = np.zeros_like(kernel), np.zeros_like(bias), 0.0
        for index in np.ndindex(T, B):
            obs, action = array(trajectory.obs)[index], int(trajectory.action[index])
            error = target[index] - (obs @ kernel[:, action] + bias[action])
            kernel_step[:, action] += error * obs / (T * B)
            bias_step[action] += error / (T * B)
            loss += 0.5 * error**2 / (T * B)
        kernel, bias = kernel + STEP_SIZE * kernel_step, bias + STEP_SIZE * bias_step
        losses.append(loss)
    np.testing.assert_allclose(learned.params["params"]["kernel"], kernel, atol=1e-5)
    np.testing.assert_allclose(learned.params["params"]["bias"], bias, atol=1e-5)
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-5)


@pytest.fixture(scope="module")
def loss():
    """That of an update, for any lambda: one program."""

    @jax.jit
    def loss(trace_lambda, trajectory, key):
        learner, state = linear(dataclasses.replace(CONFIG, trace_lambda=trace_lambda))
        return learner.update(state, trajectory, key)[1]["loss"]

    return loss


@pytest.mark.parametrize(
    ("trace_lambda", "index", "seen"),
    [
        (0.7, TERMINATED, False),
        (0.7, TRUNCATED, True),
        (1.0, TERMINATED, False),
        (1.0, TRUNCATED, True),
        (0.7, (2, 1), True),
        (1.0, (2, 1), False),
        (1.0, (T - 1, 0), True),
    ],
)
def test_targets_bootstrap_from_the_true_next_observation(loss, trajectory, key, trace_lambda, index, seen):
    """The next observation matters unless the step terminated, or lambda 1 reads on to a later one."""
    moved = trajectory._replace(next_obs=trajectory.next_obs.at[index].add(1.0))
    assert (loss(trace_lambda, trajectory, key) != loss(trace_lambda, moved, key)) == seen


@pytest.mark.rest
def test_epsilon_falls_over_the_fraction():
    """A straight line over half of ten iterations, each acting with one epsilon throughout."""
    config = dataclasses.replace(CONFIG, epsilon_start=0.9, epsilon_end=0.1, exploration_fraction=0.5)
    result = jax.jit(pqn.pqn.make_train(config, ENV))(jax.random.key(0))
    expected = [0.9, 0.74, 0.58, 0.42, 0.26, 0.1, 0.1, 0.1, 0.1, 0.1]
    np.testing.assert_allclose(result.metrics["epsilon"], expected, rtol=1e-5)
    assert counters.number(result.state.learner.iterations) == 10


def test_acts_at_random_below_epsilon():
    """Of noise 0.05 and 0.15 epsilon 1 lets both act at random, epsilon 0.1 the first alone; the rest is greedy."""
    learner = pqn.make_learner(dataclasses.replace(CONFIG, epsilon_end=0.1), ENV, network=nn.Dense(2))
    params = {"params": {"kernel": jnp.zeros((4, 2)), "bias": jnp.array([0.0, 1.0])}}
    noise = jnp.array([[0.05, 0.2], [0.15, 0.2]])  # the random action is 0, the greedy one 1
    for iterations, actions in ((0, [0, 0]), (10, [0, 1])):
        state = pqn.PQNState(params, (), counters.of(iterations))
        action, _, _ = learner.explore(learner.behaviour(state), Situation(jnp.ones((2, 4)), ()), noise)
        np.testing.assert_array_equal(action, actions)
    greedy, _ = learner.exploit(params, Situation(jnp.ones((2, 4)), ()), jax.random.key(0))
    np.testing.assert_array_equal(greedy, [1, 1])


def test_iterations_beyond_int32(trajectory, key):
    """They go on, and epsilon goes on falling."""
    config = dataclasses.replace(CONFIG, total_steps=CONFIG.batch_size * 2**33, exploration_fraction=1.0)
    learner, state = linear(config)
    state = state._replace(iterations=counters.of(2**32 - 1))
    state, metrics, _ = jax.jit(learner.update)(state, trajectory, key)
    assert counters.number(state.iterations) == 2**32
    expected = (config.epsilon_start + config.epsilon_end) / 2
    np.testing.assert_allclose(metrics["epsilon"], expected, rtol=1e-6)


def test_layers_are_normalised(key):
    """Ten times the first layer's weights give the same values, as normalisation takes their size out again."""
    obs = 10 * jax.random.normal(key, (5, 4))
    network = pqn.make_network(CONFIG, ENV)
    params = network.init(jax.random.key(1), obs)
    torso = params["params"]["torso"]
    first = jax.tree.map(lambda x: 10 * x, torso["Dense_0"])
    larger = {"params": {**params["params"], "torso": {**torso, "Dense_0": first}}}
    np.testing.assert_allclose(network.apply(larger, obs), network.apply(params, obs), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"num_minibatches": 5}, ["num_minibatches = 5: must divide num_envs * num_steps = 12"]),
        ({"total_steps": 11}, ["total_steps = 11:"]),
        ({"exploration_fraction": 0.0}, ["exploration_fraction = 0.0:"]),
        ({"epsilon_end": 1.5, "trace_lambda": -0.1}, ["epsilon_end = 1.5:", "trace_lambda = -0.1:"]),
    ],
)
def test_problems(change, lines):
    config = dataclasses.replace(CONFIG, **change)
    problems = pqn.pqn.problems(config, None)
    assert len(problems) == len(lines) and all(a.startswith(b) for a, b in zip(problems, lines, strict=True))
    with pytest.raises(ConfigError):
        check(config, *problems)


def test_defaults_are_sound():
    assert pqn.problems(pqn.PQNConfig(), ENV) == []
    [problem] = pqn.problems(pqn.PQNConfig(), envs.make("Pendulum-v1"))
    assert "the algorithm needs Discrete" in problem
