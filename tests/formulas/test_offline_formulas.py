"""Expectiles, weights of advantages and soft maxima of continuous actions, in closed form."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.formulas import offline


@pytest.mark.parametrize(("expectile", "share"), [(0.5, 0.3), (0.7, 0.3), (0.9, 0.5), (0.2, 0.8)])
def test_what_minimises_the_loss_is_the_expectile(expectile, share):
    """Of a number that is 1 with probability p and else 0 it is ``tau p / (tau p + (1 - tau) (1 - p))``."""
    with jax.enable_x64():
        mean = lambda x: (
            share * offline.expectile_loss(1 - x, expectile) + (1 - share) * offline.expectile_loss(-x, expectile)
        )
        known = expectile * share / (expectile * share + (1 - expectile) * (1 - share))
        slope, curvature = jax.grad(mean), jax.grad(jax.grad(mean))
        np.testing.assert_allclose(slope(known), 0.0, atol=1e-12)
        assert curvature(known) > 0


def test_weights_are_clipped_and_stop_gradients():
    advantage = np.array([-2.0, 0.0, 1.5, 50.0])
    with jax.enable_x64():
        weight = offline.advantage_weight(jnp.asarray(advantage), 3.0, 100.0)
        np.testing.assert_allclose(weight, np.minimum(np.exp(3.0 * advantage), 100.0), rtol=1e-6)
        gradient = jax.grad(lambda a: jnp.sum(offline.advantage_weight(a, 3.0, 100.0)))(jnp.asarray(advantage))
    np.testing.assert_array_equal(gradient, 0.0)
    np.testing.assert_array_equal(offline.advantage_weight(jnp.asarray(advantage), 0.0, 100.0), 1.0)


def test_a_linear_value_has_its_integral():
    """``integral exp(c a) da`` over [-1, 1] is ``2 sinh(c) / c``, whatever the actions are drawn by."""
    slope, count = 1.7, 20_000
    u = (np.arange(count) + 0.5) / count
    evenly, unevenly = 2 * u - 1, 2 * np.sqrt(u) - 1  # densities 1/2 and (a + 1) / 2
    with jax.enable_x64():
        for action, density in ((evenly, np.full(count, 0.5)), (unevenly, (unevenly + 1) / 2)):
            estimate = offline.log_integral(jnp.asarray(slope * action), jnp.log(jnp.asarray(density)))
            np.testing.assert_allclose(estimate, math.log(2 * math.sinh(slope) / slope), atol=2e-3)
