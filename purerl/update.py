"""Gradient steps, and epochs over minibatches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from purerl.types import Array, Key, Metrics, PyTree


def minibatch_indices(key: Key, num_samples: int, num_epochs: int, num_minibatches: int) -> Array:
    """A fresh permutation of ``num_samples`` for each epoch, cut into minibatches. Consumes ``key``.

    Returns ``[num_epochs * num_minibatches, num_samples // num_minibatches]`` int32.
    """
    keys = jax.random.split(key, num_epochs)
    permutations = jax.vmap(lambda k: jax.random.permutation(k, num_samples))(keys)
    return permutations.reshape(num_epochs * num_minibatches, num_samples // num_minibatches)


def gradient_step(
    loss: Callable[..., tuple[Array, Metrics]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    *args: PyTree,
) -> tuple[PyTree, PyTree, Metrics]:
    """One step down ``loss(params, *args) -> (loss, metrics)``. Adds ``loss`` and ``grad_norm`` to the metrics."""
    (value, metrics), grads = jax.value_and_grad(loss, has_aux=True)(params, *args)
    updates, opt_state = optimiser.update(grads, opt_state, params)
    metrics = {**metrics, "loss": value, "grad_norm": optax.tree.norm(grads)}
    return optax.apply_updates(params, updates), opt_state, metrics


def epochs(
    step: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]],
    state: PyTree,
    batch: PyTree,
    indices: Array,
) -> tuple[PyTree, Metrics]:
    """``step(state, minibatch) -> (state, metrics)`` for each row of ``indices``, gathering inside the scan.

    ``batch`` has leading axis ``[N]``. Returns the last state and the metrics' means over all steps.
    """

    def one(state, index):
        return step(state, jax.tree.map(lambda x: x[index], batch))

    state, metrics = jax.lax.scan(one, state, indices)
    return state, jax.tree.map(jnp.mean, metrics)


def linear_decay(learning_rate: Array, decay: Array, num_updates: int) -> optax.Schedule:
    """From ``learning_rate`` down by the fraction ``decay`` of it over ``num_updates`` updates, and constant after.

    With ``decay = 1`` it ends at zero and stays there. Both numbers may be traced.
    """
    return optax.linear_schedule(learning_rate, learning_rate * (1 - decay), num_updates)
