"""Maximum-entropy formulas against float64, integrals and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl.formulas import exploration, soft, td_errors


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5)])
def test_squashed_density(mean, log_std):
    """Of two dimensions, by the change of variables in float64; and it integrates to one."""
    noise = np.random.default_rng(0).normal(size=(200, 2))
    params = np.array([mean, 0.2, log_std, -0.3])
    action, log_prob = soft.squashed_sample(jnp.broadcast_to(jnp.float32(params), (200, 4)), jnp.float32(noise))
    std = np.exp(params[2:])
    u = params[:2] + std * noise
    log_normal = scipy.stats.norm.logpdf(u, params[:2], std)
    np.testing.assert_allclose(action, np.tanh(u), atol=1e-6)
    np.testing.assert_allclose(log_prob, np.sum(log_normal - np.log1p(-(np.tanh(u) ** 2)), axis=-1), atol=2e-4)
    grid = np.linspace(-0.99999, 0.99999, 400_001)
    at = (np.arctanh(grid) - mean) / np.exp(log_std)
    one = jnp.broadcast_to(jnp.float32([mean, log_std]), (len(grid), 2))
    _, log_density = soft.squashed_sample(one, jnp.float32(at[:, None]))
    np.testing.assert_allclose(np.trapezoid(np.exp(log_density), grid), 1.0, atol=5e-3)


def test_constant_dimensions_have_no_density():
    params, noise = jnp.linspace(-1.0, 1.0, 6)[None], jnp.ones((1, 3))
    action, log_prob = soft.squashed_sample(params, noise, np.array([True, False, True]))
    without = soft.squashed_sample(params[:, np.array([0, 2, 3, 5])], noise[:, :2])
    assert action[0, 1] == 0
    np.testing.assert_allclose(action[:, ::2], without[0], rtol=1e-6)
    np.testing.assert_allclose(log_prob, without[1], rtol=1e-6)


def test_squashed_density_far_out_is_finite_with_its_gradient():
    def total(params):
        return jnp.sum(soft.squashed_sample(params, jnp.ones((1, 1)))[1])

    for mean in (-30.0, 30.0):
        params = jnp.array([[mean, 9.0]])
        assert np.isfinite(total(params)) and np.all(np.isfinite(jax.grad(total)(params)))
        np.testing.assert_allclose(soft.squashed_mode(params), np.tanh(mean))


def test_soft_values():
    """One action against the expectation over all; with temperature 0 the latter is the mean value."""
    rng = np.random.default_rng(1)
    q, logits = rng.normal(size=(2, 5, 4))
    log_probs = np.log(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True))
    expected = np.sum(np.exp(log_probs) * (q - 0.3 * log_probs), axis=-1)
    np.testing.assert_allclose(soft.expected_soft_value(q, jnp.float32(log_probs), 0.3), expected, rtol=1e-5)
    one = soft.soft_value(jnp.float32(q), jnp.float32(log_probs[:, 0]), 0.3)
    np.testing.assert_allclose(one, q.min(axis=-1) - 0.3 * log_probs[:, 0], rtol=1e-5)


@pytest.mark.parametrize(("entropy", "rises"), [(-2.0, True), (0.0, False)])
def test_temperature_moves_towards_the_target(entropy, rises):
    slope = jax.grad(lambda x: soft.temperature_loss(x, jnp.float32(entropy), -1.0))(jnp.float32(-0.5))
    np.testing.assert_allclose(slope, np.exp(-0.5) * (entropy + 1.0), rtol=1e-6)
    assert (slope < 0) == rises


def test_least_has_one_gradient():
    """Also among equals, where that of `jax.numpy.min` is shared."""
    q = jnp.array([[1.0, 2.0, 3.0], [5.0, 4.0, 4.0]])
    np.testing.assert_array_equal(td_errors.least(q), [1.0, 4.0])
    slopes = jax.grad(lambda q: jnp.sum(td_errors.least(q)))(q)
    np.testing.assert_array_equal(slopes, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def test_ornstein_uhlenbeck():
    """Its variance in the long run is that of an autoregression: ``deviation^2 / (1 - (1 - damping)^2)``."""
    noise = jax.random.normal(jax.random.key(0), (20_000, 16))
    step = lambda state, noise: (exploration.ornstein_uhlenbeck(state, noise, 0.15, 0.2),) * 2
    _, states = jax.lax.scan(step, jnp.zeros(16), noise)
    np.testing.assert_allclose(np.var(states[1000:]), 0.04 / (1 - 0.85**2), rtol=0.03)
    lag = np.mean(states[1000:-1] * states[1001:]) / np.mean(np.square(states[1000:]))
    np.testing.assert_allclose(lag, 0.85, atol=0.01)
