"""Minibatches, schedules and steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats

from purerl import update


def test_each_epoch_is_a_permutation(key):
    for size, minibatches in ((512, 4), (60, 3), (7, 1)):
        indices = update.minibatch_indices(key, size, 3, minibatches)
        assert indices.shape == (3 * minibatches, size // minibatches)
        epochs = np.sort(np.asarray(indices).reshape(3, size), axis=1)
        np.testing.assert_array_equal(epochs, np.broadcast_to(np.arange(size), (3, size)))


def test_permutations_are_uniform():
    """Every sample is as likely in every place; and epochs differ."""
    keys = jax.random.split(jax.random.key(3), 3000)
    indices = np.asarray(jax.vmap(lambda k: update.minibatch_indices(k, 5, 1, 1))(keys)).reshape(-1, 5)
    orders = np.unique(indices, axis=0, return_counts=True)[1]
    assert len(orders) == 120
    assert scipy.stats.chisquare(orders).pvalue > 1e-3


def test_epochs_visits_everything_once_an_epoch(key):
    indices = update.minibatch_indices(key, 12, 2, 3)
    step = lambda total, minibatch: (total + minibatch["x"].sum(), {"size": jnp.float32(minibatch["x"].size)})  # noqa: E731
    total, metrics = update.epochs(step, jnp.float32(0), {"x": jnp.arange(12.0)}, indices)
    assert total == 2 * 66 and metrics["size"] == 4


def test_gradient_step_is_descent():
    loss = lambda params, x: (jnp.sum((params - x) ** 2), {})  # noqa: E731
    optimiser = optax.sgd(0.25)
    params = jnp.array([3.0, -1.0])
    params, _, metrics = update.gradient_step(loss, optimiser, params, optimiser.init(params), jnp.zeros(2))
    np.testing.assert_allclose(params, [1.5, -0.5])
    np.testing.assert_allclose(metrics["grad_norm"], np.hypot(6, 2), rtol=1e-6)
    assert metrics["loss"] == 10


def test_linear_decay_clamps():
    for decay, end in ((1.0, 0.0), (0.0, 0.1), (0.75, 0.025)):
        schedule = update.linear_decay(0.1, decay, 100)
        np.testing.assert_allclose([schedule(0), schedule(50), schedule(100)], [0.1, (0.1 + end) / 2, end], atol=1e-8)
        np.testing.assert_allclose([schedule(101), schedule(200), schedule(2**31 - 1)], end, atol=1e-8)
