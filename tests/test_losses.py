"""Objectives against numpy float64, their limits and their gradients."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from purerl import losses

CONFIG = SimpleNamespace(clip_epsilon=0.2)


def test_clipped_surrogate_by_cases():
    log_ratio, advantage = np.meshgrid(np.linspace(-1, 1, 41), [-2.0, -0.5, 0.0, 0.7, 3.0])
    ratio = np.exp(log_ratio)
    expected = np.where(advantage >= 0, np.minimum(ratio, 1.2), np.maximum(ratio, 0.8)) * advantage
    found = losses.clipped_surrogate(jnp.asarray(log_ratio), jnp.asarray(advantage), CONFIG)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


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
    np.testing.assert_allclose(losses.clipped_value_loss(value, old, target, 0.2), expected, rtol=1e-5)
    np.testing.assert_allclose(
        losses.clipped_value_loss(value, old, target, np.inf), 0.5 * (value - target) ** 2, rtol=1e-5
    )


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
        np.testing.assert_allclose(losses.huber(jnp.asarray(error), delta), expected, rtol=1e-5, atol=1e-7)
        slope = jax.vmap(jax.grad(lambda e, delta=delta: losses.huber(e, delta)))(jnp.asarray(error))
        np.testing.assert_allclose(slope, np.clip(error, -delta, delta), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(losses.huber(jnp.asarray(error), 1e3), 0.5 * error**2, rtol=1e-5)


def test_q_learning_errors_by_cases():
    """By tables of values small enough to read; the two differ where the networks disagree on the best action."""
    q, online, target = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 5.0, 1.0]), jnp.array([10.0, -2.0, 4.0])
    plain, double = losses.q_learning, losses.double_q_learning
    np.testing.assert_allclose(plain(q, 2, 0.5, 0.9, online, target), 0.5 + 0.9 * 10 - 3, rtol=1e-6)
    np.testing.assert_allclose(double(q, 2, 0.5, 0.9, online, target), 0.5 + 0.9 * -2 - 3, rtol=1e-6)
    np.testing.assert_allclose(double(q, 0, 0.5, 0.9, target, target), plain(q, 0, 0.5, 0.9, target, target))
    for td_error in (plain, double):
        assert td_error(q, 1, 0.5, 0.0, online, target) == -1.5
        with_target = jax.grad(lambda q, o, t, f=td_error: f(q, 1, 0.5, 0.9, o, t), argnums=(0, 1, 2))
        slopes = with_target(q, online, target)
        np.testing.assert_array_equal(slopes[0], [0, -1, 0])
        assert not np.any(slopes[1]) and not np.any(slopes[2])


def test_q_learning_finds_the_values_of_a_chain():
    """Following either error on a table converges to Q* of a decision process solved in numpy by value iteration."""
    rng = np.random.default_rng(3)
    reward, following = rng.normal(size=(4, 2)), rng.integers(0, 4, size=(4, 2))
    best = np.zeros((4, 2))
    for _ in range(200):
        best = reward + 0.8 * best[following].max(axis=-1)
    state, action = (x.ravel() for x in np.meshgrid(np.arange(4), np.arange(2), indexing="ij"))
    for td_error in (losses.q_learning, losses.double_q_learning):

        def sweep(table, _, td_error=td_error):
            after = table[following.ravel()]
            error = jax.vmap(td_error)(table[state], action, reward.ravel(), jnp.full(8, 0.8), after, after)
            return table + 0.5 * error.reshape(4, 2), None

        table, _ = jax.lax.scan(sweep, jnp.zeros((4, 2)), None, 200)
        np.testing.assert_allclose(table, best, atol=1e-4)
