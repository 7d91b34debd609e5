"""Objectives against numpy float64, their limits and their gradients."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from purerl.formulas import losses, td_errors

CONFIG = SimpleNamespace(clip_epsilon=0.2)


def test_clipped_surrogate_by_cases():
    log_ratio, advantage = np.meshgrid(np.linspace(-1, 1, 41), [-2.0, -0.5, 0.0, 0.7, 3.0])
    ratio = np.exp(log_ratio)
    expected = np.where(advantage >= 0, np.minimum(ratio, 1.2), np.maximum(ratio, 0.8)) * advantage
    result = losses.clipped_surrogate(jnp.asarray(log_ratio), jnp.asarray(advantage), CONFIG)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_clipped_surrogate_gradient():
    """At ratio 1 it is the policy gradient's, A; beyond the clip, on the side that gains, it is zero."""
    slope = jax.grad(lambda log_ratio, advantage: losses.clipped_surrogate(log_ratio, advantage, CONFIG))
    assert slope(0.0, 1.7) == np.float32(1.7)
    assert slope(0.5, 1.7) == 0 and slope(-0.5, -1.7) == 0
    np.testing.assert_allclose(slope(-0.5, 1.7), 1.7 * np.exp(-0.5), rtol=1e-6)
    np.testing.assert_allclose(slope(0.5, -1.7), -1.7 * np.exp(0.5), rtol=1e-6)


def test_clipped_value_loss():
    value, old, target = np.random.default_rng(0).normal(size=(3, 100))
    moved = np.clip(value, old - 0.2, old + 0.2)
    expected = 0.5 * np.maximum((value - target) ** 2, (moved - target) ** 2)
    np.testing.assert_allclose(losses.clipped_value_loss(value, old, target, CONFIG), expected, rtol=1e-5)
    squared, free = 0.5 * (value - target) ** 2, SimpleNamespace(clip_epsilon=np.inf)
    np.testing.assert_allclose(losses.clipped_value_loss(value, old, target, free), squared, rtol=1e-5)
    np.testing.assert_allclose(losses.squared_value_loss(value, old, target, free), squared, rtol=1e-5)


def test_standardise():
    x = np.random.default_rng(1).normal(3, 5, size=1000)
    np.testing.assert_allclose(losses.standardise(jnp.asarray(x)), (x - x.mean()) / x.std(), rtol=1e-4, atol=1e-5)
    assert not np.any(losses.standardise(jnp.full(7, 3.0)))


def test_approximate_kl_is_the_kl():
    """Its mean under the old policy is KL(old || new), exactly, when summed over all actions."""
    old, new = np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.35, 0.25])
    estimate = losses.approximate_kl(jnp.log(new / old))
    np.testing.assert_allclose(np.sum(old * estimate), np.sum(old * np.log(old / new)), rtol=1e-5)
    assert np.all(np.asarray(estimate) >= 0)


def test_explained_variance():
    target = np.random.default_rng(2).normal(size=50)
    np.testing.assert_allclose(losses.explained_variance(jnp.asarray(target), jnp.asarray(target)), 1)
    np.testing.assert_allclose(losses.explained_variance(jnp.zeros(50), jnp.asarray(target)), 0, atol=1e-6)
    assert np.isnan(losses.explained_variance(jnp.zeros(5), jnp.ones(5)))


def test_huber():
    """Half the square near zero, then the tangent at delta; its slope is the clipped error."""
    error = np.linspace(-5, 5, 101)
    for delta in (0.5, 1.0, 3.0):
        line = 0.5 * delta**2 + delta * (np.abs(error) - delta)
        expected = np.where(np.abs(error) <= delta, 0.5 * error**2, line)
        np.testing.assert_allclose(td_errors.huber(jnp.asarray(error), delta), expected, rtol=1e-5, atol=1e-7)
        slope = jax.vmap(jax.grad(lambda e, delta=delta: td_errors.huber(e, delta)))(jnp.asarray(error))
        np.testing.assert_allclose(slope, np.clip(error, -delta, delta), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(td_errors.huber(jnp.asarray(error), 1e3), 0.5 * error**2, rtol=1e-5)


def transitions(seed, *shapes, num_actions=3, count=6):
    """``count`` transitions: action, reward, discount and chooser, then normal arrays of ``shapes``. float32."""
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=(count, *shape)).astype(np.float32) for shape in ((), (num_actions,), *shapes)]
    discount = rng.choice([0.0, 0.9, 0.99**3], size=count).astype(np.float32)
    return rng.integers(0, num_actions, count), arrays[0], discount, *arrays[1:]


def test_q_learning_by_cases():
    """By tables of values small enough to read; the chooser decides which next value counts."""
    q, online, target = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 5.0, 1.0]), jnp.array([10.0, -2.0, 4.0])
    unused = jnp.full(3, jnp.nan)
    np.testing.assert_allclose(
        td_errors.q_learning(q, unused, 2, 0.5, 0.9, target, target), 0.5 + 0.9 * 10 - 3, rtol=1e-6
    )
    np.testing.assert_allclose(
        td_errors.q_learning(q, unused, 2, 0.5, 0.9, online, target), 0.5 + 0.9 * -2 - 3, rtol=1e-6
    )
    assert td_errors.q_learning(q, unused, 1, 0.5, 0.0, online, target) == -1.5


def test_q_learning_finds_the_values_of_a_chain():
    """Following the error on a table converges to Q* of a decision process solved in numpy by value iteration."""
    rng = np.random.default_rng(3)
    reward, following = rng.normal(size=(4, 2)), rng.integers(0, 4, size=(4, 2))
    best = np.zeros((4, 2))
    for _ in range(200):
        best = reward + 0.8 * best[following].max(axis=-1)
    state, action = (x.ravel() for x in np.meshgrid(np.arange(4), np.arange(2), indexing="ij"))

    def sweep(table, _):
        now, after = table[state], table[following.ravel()]
        error = jax.vmap(td_errors.q_learning)(now, now, action, reward.ravel(), jnp.full(8, 0.8), after, after)
        return table + 0.5 * error.reshape(4, 2), None

    table, _ = jax.lax.scan(sweep, jnp.zeros((4, 2)), None, 200)
    np.testing.assert_allclose(table, best, atol=1e-4)


def test_munchausen_against_definition():
    """With temperatures at which the bonus is clipped for some transitions and not for others."""
    action, reward, discount, chooser, q, target_q, next_q = transitions(4, (3,), (3,), (3,))
    for alpha, temperature, floor in ((0.9, 0.03, -1.0), (0.5, 0.7, -0.4), (1.3, 5.0, -10.0)):
        error = functools.partial(td_errors.munchausen, alpha=alpha, temperature=temperature, floor=floor)
        result = jax.jit(jax.vmap(error))(q, target_q, action, reward, discount, chooser, next_q)
        rows = zip(np.float64(q), np.float64(target_q), action, reward, discount, np.float64(next_q), strict=True)
        expected = [oracles.munchausen(*row, alpha, temperature, floor) for row in rows]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_munchausen_limits():
    """Cold and without a bonus it is Q-learning's error; huge values stay finite, and the bonus is 0 or the floor."""
    action, reward, discount, _, q, target_q, next_q = transitions(5, (3,), (3,), (3,))
    cold = jax.vmap(lambda *args: td_errors.munchausen(*args, alpha=0.0, temperature=1e-6))
    plain = jax.vmap(td_errors.q_learning)(q, target_q, action, reward, discount, next_q, next_q)
    np.testing.assert_allclose(cold(q, target_q, action, reward, discount, next_q, next_q), plain, rtol=1e-4, atol=1e-5)
    huge = jnp.array([1e4, 0.0, -1e4])
    for action, bonus in ((0, 0.0), (1, -0.9)):
        result = td_errors.munchausen(jnp.zeros(3), huge, action, 0.5, 0.9, huge, huge)
        np.testing.assert_allclose(result, 0.5 + bonus + 0.9 * 1e4, rtol=1e-6)


def test_project_against_hat_functions():
    """Values inside, beyond both ends, on the atoms and all in one place; on several supports."""
    rng = np.random.default_rng(6)
    for support in (np.linspace(-10, 10, 51), np.linspace(0.1, 0.7, 4), np.linspace(-3, 200, 2)):
        support, size = np.float32(support), len(support)
        width = support[-1] - support[0]
        scattered = rng.uniform(support[0] - 0.3 * width, support[-1] + 0.3 * width, size=size)
        for values in (scattered, 0.3 + 0.9 * support, support, np.full(size, support[0] + 0.43 * width)):
            values, probabilities = np.float32(values), np.float32(rng.dirichlet(np.ones(size)))
            result = td_errors.project(jnp.asarray(values), jnp.asarray(probabilities), jnp.asarray(support))
            expected = oracles.project(np.float64(values), np.float64(probabilities), np.float64(support))
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-6)
            np.testing.assert_allclose(jnp.sum(result), 1, rtol=1e-6)
            assert np.all(np.asarray(result) >= 0)


def test_project_by_cases():
    """Atoms stay where they are; what lies beyond goes to the ends; between two atoms the nearer gets more."""
    support, probabilities = jnp.linspace(-1.0, 1.0, 5), jnp.array([0.1, 0.2, 0.3, 0.15, 0.25])

    def project(*values):
        return td_errors.project(jnp.array(values), probabilities, support)

    np.testing.assert_allclose(project(-1.0, -0.5, 0.0, 0.5, 1.0), probabilities, rtol=1e-6)
    np.testing.assert_allclose(project(0.5, 0.5, 0.5, 0.5, 0.5), [0, 0, 0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(project(-7.0, -1.1, 0.0, 1.2, 1e9), [0.3, 0, 0.3, 0, 0.4], rtol=1e-6)
    between = [0, 0.75 * 0.3 + 0.1 + 0.2, 0.25 * 0.3 + 0.15 + 0.25, 0, 0]
    np.testing.assert_allclose(project(-0.5, -0.5, -0.375, 0.0, 0.0), between, rtol=1e-6)


def test_project_keeps_the_mean_inside():
    rng = np.random.default_rng(7)
    support = jnp.linspace(-2.0, 6.0, 9)
    values, probabilities = rng.uniform(-2, 6, size=9), rng.dirichlet(np.ones(9))
    result = td_errors.project(jnp.asarray(values), jnp.asarray(probabilities), support)
    np.testing.assert_allclose(result @ support, values @ probabilities, rtol=1e-5)


def test_categorical_q_learning_against_definition():
    """Cross-entropy in numpy, the divergence by scipy, on a batch with terminations."""
    support = np.linspace(-2, 2, 5, dtype=np.float32)
    action, reward, discount, chooser, logits, next_logits = transitions(8, (3, 5), (3, 5))
    loss, divergence = jax.jit(jax.vmap(td_errors.categorical_q_learning, in_axes=(0,) * 6 + (None,)))(
        logits, action, reward, discount, chooser, next_logits, support
    )
    for i in range(len(action)):
        online = oracles.softmax(np.float64(logits[i, action[i]]))
        following = oracles.softmax(np.float64(next_logits[i, np.argmax(chooser[i])]))
        target = oracles.project(np.float64(reward[i]) + discount[i] * np.float64(support), following, support)
        np.testing.assert_allclose(loss[i], -np.sum(target * np.log(online)), rtol=1e-5)
        np.testing.assert_allclose(divergence[i], scipy.stats.entropy(target, online), rtol=1e-4, atol=1e-6)


def test_categorical_q_learning_limits():
    """No divergence from itself, whatever the entropy; the loss of a sure target is the surprise, never infinite."""
    support = jnp.linspace(-2.0, 2.0, 5)
    logits = jnp.array([[0.3, -1.0, 2.0, 0.5, -0.2], [1.0, 0.0, 0.0, 4.0, 1.0]])
    chooser = jnp.array([0.0, 1.0])
    loss, divergence = td_errors.categorical_q_learning(logits, 1, 0.0, 1.0, chooser, logits, support)
    np.testing.assert_allclose(loss, scipy.stats.entropy(jax.nn.softmax(logits[1])), rtol=1e-5)
    np.testing.assert_allclose(divergence, 0, atol=1e-6)
    loss, divergence = td_errors.categorical_q_learning(logits, 0, 1.0, 0.0, chooser, logits, support)
    np.testing.assert_allclose(loss, -jax.nn.log_softmax(logits[0])[3], rtol=1e-5)
    np.testing.assert_allclose(divergence, loss, rtol=1e-6)
    sure = jnp.array([[200.0, 0.0, 0.0, 0.0, 0.0]])
    loss, divergence = td_errors.categorical_q_learning(sure, 0, 9.0, 0.5, jnp.zeros(1), sure, support)
    np.testing.assert_allclose((loss, divergence), (200, 200), rtol=1e-6)


def test_categorical_gradient_is_the_difference_of_probabilities():
    support = jnp.linspace(-2.0, 2.0, 5)
    action, reward, discount, chooser, logits, next_logits = (x[0] for x in transitions(9, (3, 5), (3, 5)))
    slope = jax.grad(lambda logits, *rest: td_errors.categorical_q_learning(logits, *rest, support)[0])(
        logits, action, reward, discount, chooser, next_logits
    )
    following = oracles.softmax(np.float64(next_logits[np.argmax(chooser)]))
    expected = np.zeros((3, 5))
    expected[action] = oracles.softmax(np.float64(logits[action])) - oracles.project(
        reward + discount * np.float64(support), following, np.float64(support)
    )
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kappa", [0.01, 0.5, 1.0, 10.0])
def test_quantile_q_learning_against_definition(kappa):
    """By a loop over quantiles and targets, of different numbers."""
    action, reward, discount, chooser, quantiles, next_quantiles = transitions(10, (3, 4), (3, 7))
    taus = np.random.default_rng(11).uniform(size=(len(action), 4)).astype(np.float32)
    loss, error = jax.jit(jax.vmap(td_errors.quantile_q_learning, in_axes=(0,) * 7 + (None,)))(
        quantiles, taus, action, reward, discount, chooser, next_quantiles, kappa
    )
    for i in range(len(action)):
        target = np.float64(reward[i]) + discount[i] * np.float64(next_quantiles[i, np.argmax(chooser[i])])
        current = np.float64(quantiles[i, action[i]])
        np.testing.assert_allclose(loss[i], oracles.quantile_huber(current, taus[i], target, kappa), rtol=1e-4)
        np.testing.assert_allclose(error[i], np.mean(target) - np.mean(current), rtol=1e-4, atol=1e-6)


def test_quantile_loss_is_least_at_the_empirical_quantiles():
    """Descending leads to the first of the sorted samples up to which at least that fraction of them lies."""
    samples = np.random.default_rng(12).normal(size=(1, 11)).astype(np.float32)
    taus = np.array([0.05, 0.25, 0.5, 0.7, 0.97], np.float32)

    def loss(quantiles):
        return td_errors.quantile_q_learning(quantiles, taus, 0, 0.0, 1.0, jnp.zeros(1), samples, 1e-3)[0]

    def descend(quantiles, step_size):
        return quantiles - step_size * jax.grad(loss)(quantiles), None

    result, _ = jax.lax.scan(descend, jnp.zeros((1, 5)), jnp.linspace(0.3, 0.0, 3000))
    expected = [np.sort(samples[0])[int(np.ceil(tau * 11)) - 1] for tau in taus]
    np.testing.assert_allclose(result[0], expected, atol=2e-3)


def gradients(loss, *args):
    """Of the sum of what ``loss`` returns, with respect to every float among ``args``, by position."""
    floats = [i for i, x in enumerate(args) if np.asarray(x).dtype.kind == "f"]

    def total(*args):
        return sum(jax.tree.leaves(loss(*args)))

    return dict(zip(floats, jax.jit(jax.grad(total, argnums=tuple(floats)))(*args), strict=True))


def test_gradients_flow_into_the_first_argument_alone():
    """And there only into the values of the action that was taken."""
    support, taus = np.linspace(-2, 2, 5, dtype=np.float32), np.linspace(0.1, 0.9, 5, dtype=np.float32)
    _, reward, _, chooser, q, target_q, next_q, out, next_out = (
        x[0] for x in transitions(13, (3,), (3,), (3,), (3, 5), (3, 5))
    )
    discount = np.float32(0.9)
    cases = [
        (td_errors.q_learning, q, target_q, 1, reward, discount, chooser, next_q),
        (td_errors.munchausen, q, target_q, 1, reward, discount, chooser, next_q),
        (td_errors.categorical_q_learning, out, 1, reward, discount, chooser, next_out, support),
        (lambda *args: td_errors.quantile_q_learning(*args, 1.0), out, taus, 1, reward, discount, chooser, next_out),
    ]
    for loss, *args in cases:
        slopes = gradients(loss, *args)
        first = np.asarray(slopes.pop(0))
        assert np.all(first[1] != 0) and not np.any(first[[0, 2]])
        assert len(slopes) >= 4 and not any(np.any(slope) for slope in slopes.values())


ROUND_TRIP = jax.jit(lambda x, epsilon: td_errors.unrescale(td_errors.rescale(x, epsilon), epsilon))


@settings(deadline=None, derandomize=True)
@given(st.floats(-1e4, 1e4, width=32, allow_subnormal=False), st.sampled_from([0.0, 1e-3, 0.1]))
def test_unrescale_inverts_rescale(x, epsilon):
    np.testing.assert_allclose(ROUND_TRIP(np.float32(x), epsilon), np.float32(x), rtol=1e-5, atol=1e-30)


@pytest.mark.rest
def test_rescale_against_definition():
    """h(1) and h(100) as published numbers; the formula and the inverse of the paper in float64; odd; its slope."""
    np.testing.assert_allclose(td_errors.rescale(jnp.array([1.0, 100.0])), [0.4152, 9.1499], atol=5e-5)
    x = np.concatenate([-np.geomspace(1e4, 1e-2, 30), [0.0], np.geomspace(1e-2, 1e6, 30)])
    for epsilon in (1e-3, 1e-2):
        scaled = np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x
        np.testing.assert_allclose(td_errors.rescale(jnp.asarray(x), epsilon), scaled, rtol=1e-5)
        root = np.sqrt(1 + 4 * epsilon * (np.abs(x) + 1 + epsilon))
        inverse = np.sign(x) * (((root - 1) / (2 * epsilon)) ** 2 - 1)
        np.testing.assert_allclose(td_errors.unrescale(jnp.asarray(x), epsilon), inverse, rtol=1e-5)
    slopes = jax.vmap(jax.grad(td_errors.rescale))(jnp.array([-3.0, 0.0, 3.0]))
    np.testing.assert_allclose(slopes, [0.25 + 1e-3, 0.5 + 1e-3, 0.25 + 1e-3], rtol=1e-5)
