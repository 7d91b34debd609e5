"""Measures of a layer's use, beside singular values and sums in numpy float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from purerl.formulas import activations


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_effective_rank(scale):
    """Of singular values; any scale; k equal orthogonal directions count k; nothing counts 0."""
    rng = np.random.default_rng(0)
    features = scale * (rng.normal(size=(40, 3)) @ rng.normal(size=(3, 12)) + 0.1 * rng.normal(size=(40, 12)))
    s = np.linalg.svd(features, compute_uv=False)
    result = activations.effective_rank(jnp.asarray(features, jnp.float32))
    np.testing.assert_allclose(result, np.sum(s**2) ** 2 / np.sum(s**4), rtol=1e-4)
    equal = scale * np.eye(8)[:, :5]
    np.testing.assert_allclose(activations.effective_rank(jnp.asarray(equal, jnp.float32)), 5, rtol=1e-6)
    assert activations.effective_rank(jnp.zeros((4, 3))) == 0


def test_dormant():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(50, 20)) * np.logspace(-4, 0, 20)
    activity = np.abs(features).mean(axis=0)
    expected = activity / activity.mean() <= 0.025
    assert 0 < expected.sum() < 20
    np.testing.assert_array_equal(activations.dormant(jnp.asarray(features, jnp.float32)), expected)
    assert activations.dormant(jnp.zeros((3, 4))).all() and not activations.dormant(jnp.ones((3, 4))).any()
